"""The docs hold together: code compiles, command lines parse, links lead somewhere, published numbers are current."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from math import inf
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest
import torch
from matplotlib.image import imread

import anchorlab.cli
from anchorlab.cli import main
from anchorlab.findings import Claim, Control, Findings, LineFigure, Map, MapFigure, Provenance, Table, ledger, line
from anchorlab.papers.published import published_entries
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, findings_directory, run_study, study
from anchorlab.studies.claim import judge
from anchorlab.tasks import Combined, check_task, task
from tests.documents import DOCS, README, ROOT, blocks, command_lines, local_links, name, pages
from tests.papers.hand_made_runs import seen_by_hand

GALLERY = DOCS / "gallery"


def load(path: Path) -> ModuleType:
    """A file outside the package as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gallery_build() -> ModuleType:
    return load(GALLERY / "build.py")


def published() -> list[Findings]:
    """The published findings, in the order of the studies; of each, those of its quick profile first."""
    build = gallery_build()
    folders = [
        build.folder_of(known, GALLERY, build.beside_of(profile))
        for known in STUDIES
        for profile in build.profiles_of(known)
    ]
    paths = [folder / "findings.json" for folder in folders]
    return [Findings.from_json(path.read_bytes(), at=name(path)) for path in paths if path.exists()]


def run_page(page: str, folder: Path, store: Path | None = None) -> str:
    """Run the Python of a page of `how_to` in a folder, and return what it prints."""
    source = "\n".join(blocks(DOCS / "how_to" / f"{page}.md", "python"))
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "ANCHORLAB_STORE": str(store or folder / "runs")}
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(block):
    """The dotted names of the package that a block imports or reads, with `al` for the package itself."""
    found = set()
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "anchorlab":
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names if one.name.split(".")[0] == "anchorlab"}
        elif isinstance(node, ast.Attribute) and (text := ast.unparse(node)).startswith("al."):
            found.add(re.match(r"[\w.]+", text)[0].rstrip(".").replace("al.", "anchorlab.", 1))
    return found


def is_there(dotted):
    """Whether a name exists; one whose module needs a package that is not installed counts as existing."""
    parts = dotted.split(".")
    try:
        found = import_module(parts[0])
        for n, part in enumerate(parts[1:], 2):
            if not hasattr(found, part):
                import_module(".".join(parts[:n]))
            found = getattr(found, part)
    except ImportError as error:
        return (error.name or "anchorlab").partition(".")[0] != "anchorlab"
    return True


@pytest.mark.parametrize("page", pages(), ids=name)
def test_python_blocks_compile_and_name_what_is_there(page):
    named_here = set().union(*map(named, blocks(page, "python")))
    assert sorted(one for one in named_here if not is_there(one)) == []


MODERN = re.escape("".join(blocks(DOCS / "how_to" / "modern_decoder.md", "text")))
ENSEMBLE = "Ensemble of 3 members: DecoderSpec(layers=2, heads=2, width=64)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "needs", "said", "left"),
    [
        ("anchor_function", "torch", ".*Training shows all of the answers.*", []),
        ("plain_torch", "torch", f"{re.escape(ENSEMBLE)}.*", ["identity-model", "runs"]),
        ("own_loss", "torch", r"shape: \(3, 3\).*\n\[\d.*, \d.*\]\ntensor\(1\.\)\n", ["runs", "squared"]),
        pytest.param("modern_decoder", "transformers", MODERN, ["identity-llama", "runs"], marks=pytest.mark.nightly),
        pytest.param("transformer_lens", "transformer_lens", ".*", ["runs"], marks=pytest.mark.nightly),
    ],
)
def test_what_a_page_says_and_the_files_that_it_leaves(page, needs, said, left, tmp_path):
    pytest.importorskip(needs)
    assert re.fullmatch(said, run_page(page, tmp_path), re.DOTALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


@pytest.mark.slow
def test_everything_draws_itself(tmp_path):
    run_page("draw", tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.png") if path.stat().st_size > 5000}
    assert drawn == {"accuracy.png", "losses.png", "pattern.png", "heads.png", "circuit.png", "figure.png"}


class ReachedTrainingError(BaseException):
    """Raised in place of training, or of opening a model: everything before it was in order. One study of several may
    not swallow it."""


@pytest.mark.parametrize(
    "words", [words for page in pages() for words in command_lines(page, "anchorlab")], ids=" ".join
)
def test_command_lines_are_valid(words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ANCHORLAB_STORE", str(tmp_path / "runs"))
    before = ["", *words[:-1]]
    written = ("--figure", "--out")
    words = [str(tmp_path / word) if option in written else word for option, word in zip(before, words, strict=True)]

    def stop(*_: object, **__: object) -> None:
        raise ReachedTrainingError

    # a command that is imported later would keep what is put in place here
    for command in walk_packages(anchorlab.cli.__path__, "anchorlab.cli."):
        import_module(command.name)
    for module in [module for key, module in sys.modules.items() if key.startswith("anchorlab.")]:
        for called in ("run", "run_study", "pretrained", "forecast"):
            if callable(getattr(module, called, None)):
                monkeypatch.setattr(module, called, stop)
    if words[0] in ("train", "study", "sweep", "verify", "look-at") or "--prompts" in words:
        with pytest.raises(ReachedTrainingError):
            main(words)
    elif "RUN" in words or words[0] in ("report", "browse") or words[:2] == ["runs", "export"]:
        # they need runs; the answer says that there are none
        assert main(words) == 2
        assert re.search("no run begins with 'RUN'|has no (findings|runs)", capsys.readouterr().err)
    else:
        assert main(words) == 0


@pytest.fixture
def claims_table(browser, monkeypatch):
    """The table of all claims in a page, with its script."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    body = import_module("claims_page").claims_page().split("```")[1].removeprefix("{raw} html")
    page = browser.new_page()
    page.set_content(f"<script>{(DOCS / '_static' / 'claims.js').read_text('utf-8')}</script>{body}")
    yield page
    page.close()


def test_the_table_of_claims_is_filtered_by_verdict_paper_and_words(claims_table):
    strongest = {key: entry.strongest for key, entry in published_entries().items()}
    wrong = [key for key, result in strongest.items() if result.verdict == "contradicted"]
    claims_table.locator("[name=verdict]").select_option("contradicted")
    shown = claims_table.locator("#claims tbody tr:visible")
    assert sorted(row.get_attribute("id") for row in shown.all()) == sorted(key.replace("/", "-") for key in wrong)
    assert claims_table.locator("#claims-count").inner_text() == f"{len(wrong)} of {len(strongest)} claims"
    claims_table.locator("[name=paper]").select_option("anchor functions")
    of_one = [key for key in wrong if strongest[key].claim.source.startswith("anchor functions")]
    assert shown.count() == len(of_one) < len(wrong)
    claims_table.locator("[name=verdict]").select_option("")
    claims_table.locator("[name=words]").fill("lstm")
    assert 0 < shown.count() < len(strongest) / 4
    assert all("anchor functions" in row.inner_text() and "lstm" in row.inner_text().lower() for row in shown.all())


def test_every_claim_has_a_row_that_links_to_its_study(claims_table):
    rows = claims_table.locator("#claims tbody tr").all()
    assert len({row.get_attribute("id") for row in rows}) == len(rows) == len(published_entries())
    for link in {row.locator("a").first.get_attribute("href") for row in rows}:
        assert (DOCS / link).with_suffix(".md").exists(), link


def test_make_targets_exist():
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"))
    for page in pages():
        for words in command_lines(page, "make"):
            assert words[0] in targets, f"{name(page)}: make {words[0]}"
        for target in re.findall(r"`make ([\w-]+)`", page.read_text("utf-8")):
            assert target in targets, f"{name(page)}: make {target}"
    for steps in ("gates", "nightly"):
        for words in re.findall(r"\bmake (.*)", (ROOT / ".ci" / steps).read_text("utf-8")):
            named = [word for word in words.split() if re.fullmatch(r"[a-z][\w-]*", word)]
            assert named and set(named) <= set(targets), f".ci/{steps}: make {words}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_local_links_lead_somewhere(page):
    for link in local_links(page):
        if "generated/" in link:  # written by every build
            continue
        hint = "; `make gallery` writes it" if "gallery" in link else ""
        assert (page.parent / link).exists(), f"{name(page)}: no file {link}{hint}"


def test_every_study_is_published_and_its_findings_check_the_claims_of_today():
    """Else the tests below would say nothing of what is missing."""
    read = published()
    assert {one.study for one in read} == set(STUDIES)
    kept = {path.parent for path in GALLERY.glob("*/*") if path.parent.name not in ("__pycache__", "paper-models")}
    assert {folder.name for folder in kept if not (folder / "findings.json").exists()} == set()
    assert len(read) == len(kept)
    for findings in published():
        assert findings.profile != "smoke"
        assert study(findings.study).judge_again(findings) == findings, "run docs/gallery/build.py --published"


@pytest.mark.slow
def test_published_texts_count_layers_from_0():
    """As sites do; a figure of a model of two layers has none called layer 2."""
    two_layers = {"anchor/identity", "anchor/mechanism", "anchor/simplified", "anchor/two-distances"}
    for findings in published():
        text = findings.to_json()
        assert not re.findall(r"(?i)[^\"]{0,40}(?:second|third|fourth) layer\b", text), findings.study
        if findings.study in two_layers or findings.study.startswith("truncation/"):
            assert not re.findall(r"(?i)[^\"]{0,40}layer 2\b", text), findings.study
        layers = [one for table in findings.tables for one in column(table, "layer") + column(table, "reading layer")]
        assert not layers or max(layers) <= 29, findings.study  # of the 30 layers of the language model


def test_published_figures_name_what_they_show():
    """Their seeds, where they show one alone; and each curve by a name of its own."""
    for findings in published():
        for figure in findings.figures:
            told = re.match(r"(?:Layer \d, )?[Ss]eed (\d+)\b", figure.caption)
            assert told is None or figure.seeds == told[1], f"{findings.study}: {figure.title}"
            names = [one.label for one in figure.lines] if isinstance(figure, LineFigure) else []
            assert len(names) == len(set(names)), f"{findings.study}: {figure.title}"


def test_published_tables_name_seeds_that_were_trained():
    for found in published():
        if found.provenance.seeds != "none":
            spans = [one.partition("..")[::2] for one in found.provenance.seeds.split(", ")]
            trained = {seed for first, last in spans for seed in range(int(first), int(last or first) + 1)}
            named = {seed for one in found.tables if "seed" in one.columns for seed in column(one, "seed")}
            assert named <= trained, found.study


def column(shown: Table, name: str) -> list[int]:
    """The numbers in a table's column of this name, if it has one."""
    return [] if name not in shown.columns else [row[shown.columns.index(name)] for row in shown.rows]


@pytest.fixture
def extensions(monkeypatch) -> Path:
    """The folder of our Sphinx extensions, from which they can be imported."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    return DOCS / "_ext"


@pytest.mark.parametrize(
    ("published_profile", "seeds", "judged"),
    [
        (None, (1000,), ["paper:1000"]),
        ("paper", (1000,), []),  # five seeds are published
        ("paper:1000:1002", (1000,), []),
        ("paper:1000", (1000,), ["paper:1000"]),
        ("paper:1000", (1000, 1001), ["paper:1000:1002"]),
        ("paper:1004", (1000, 1001), ["paper:1000:1002"]),
    ],
)
def test_parts_replace_no_findings_of_more_seeds(tmp_path, monkeypatch, published_profile, seeds, judged):
    build, asked = gallery_build(), []
    one = study("anchor/frequency")
    monkeypatch.setattr(build, "STUDIES", [one.name])
    monkeypatch.setattr(build, "seeds_with_parts", lambda *_: seeds)
    monkeypatch.setattr(build, "run_study", lambda study, profile, *_, **__: asked.append(profile))
    if published_profile is not None:
        folder = build.folder_of(one.name, tmp_path, "paper")
        folder.mkdir()
        source = Provenance(published_profile, "1000", "2 CPU cores", "0123456789abcdef", "2.6.0", 1.0)
        kept = Findings(one.name, one.title, "", published_profile, source)
        (folder / "findings.json").write_text(kept.to_json())
    build.judge_parts(Store(tmp_path / "store"), tmp_path)
    assert asked == judged


def test_every_public_name_of_the_face_is_in_the_api(extensions):
    generated = load(extensions / "generated_pages.py")
    text = "".join(generated.package_page(package) for package in generated.PACKAGES)
    for public in anchorlab.__all__:
        if not public.startswith("_"):
            there = anchorlab._SPELLED.get(public, public)
            assert f"anchorlab.{anchorlab._FACE[public]}.{there}\n" in text, public


def test_a_missing_result_stops_the_build_with_a_remedy(extensions, tmp_path):
    from sphinx.errors import ConfigError

    with pytest.raises(ConfigError, match=r"no results of anchor/.*`make gallery` writes them"):
        load(extensions / "generated_pages.py").check_gallery(tmp_path)


def test_without_one_result_the_build_stops(extensions, tmp_path):
    """It names that study alone; with all results it goes on."""
    from sphinx.errors import ConfigError

    check = load(extensions / "generated_pages.py").check_gallery
    for known in STUDIES:
        (tmp_path / known.replace("/", "-")).mkdir()
        (tmp_path / known.replace("/", "-") / "claims.md").touch()
    (tmp_path / "anchor-identity" / "claims.md").unlink()
    with pytest.raises(ConfigError, match=r"no results of anchor/identity; `make gallery`"):
        check(tmp_path)
    (tmp_path / "anchor-identity" / "claims.md").touch()
    check(tmp_path)


def test_docstrings_become_restructured_text(extensions):
    plain = load(extensions / "plain_docstrings.py")
    assert plain.to_rst(["`a` * b_"]) == ["``a`` \\* b\\_", ""]
    assert plain.to_rst(["Shapes", "    x: `[batch]`"]) == ["| Shapes", "|     x: ``[batch]``", ""]
    assert plain.to_rst(["a: one", "    and more"]) == ["| a: one and more", ""]
    written = ["Args:", "    a: one", "        and more", "    b: two"]
    assert plain.to_rst(written) == ["**Args:**", "", "- ``a``: one and more", "- ``b``: two", ""]
    assert plain.to_rst(["| a | b |", "|---|---|", "| 1 | 2 |"])[3:7] == [
        "   * - a", "     - b", "   * - 1", "     - 2",
    ]  # fmt: skip
    assert plain.to_rst(["Text:", "", "    drawn *here*"]) == ["Text:", "", "::", "", "    drawn *here*", ""]
    nested = "(a: Annotated[tuple[Annotated[int, Ge(ge=0)], ...], Len(1)] = (1,), b: int = 2)"
    assert plain.without_annotations(nested) == "(a: tuple[int, ...] = (1,), b: int = 2)"


def made_findings() -> Findings:
    source = Provenance("quick", "0..2", "2 CPU cores", "0123456789abcdef", "2.6.0", 141.0)
    claim = Claim("anchor/identity/made", "It is high", "nowhere", "about 1", "its height", (0.9, None))
    figure = LineFigure("Height | width (Fig 1)", "Made by hand.", "x", "y", (line("a", [1, 2], [[0, 1], [1, 2]]),))
    heights = Table("Heights", "By width.", ("width", "height"), ((1, 0.5), (2, None)))
    judged = claim.judge(0.98765, "quick")
    return Findings("anchor/identity", "Made", "By hand.", "quick", source, (judged,), (figure,), (heights,))


def test_the_picture_beside_links_shows_attention_in_the_size_that_sites_ask_for(extensions, tmp_path):
    maps = MapFigure("Attention", "Made by hand.", ((Map("layer 0", ((1.0, 0.0), (0.5, 1.0))),),))
    (tmp_path / "findings.json").write_text(replace(made_findings(), figures=(maps,)).to_json(), "utf-8")
    import_module("social_picture").draw(tmp_path / "findings.json", tmp_path / "social.png")
    pixels = imread(tmp_path / "social.png")[..., :3]
    assert pixels.shape == (630, 1200, 3)
    brightness = pixels[[[245], [384]], [657, 795]].mean(axis=-1)  # at the middle of each cell of the map
    assert brightness[0, 1] == 1
    assert brightness[0, 0] == brightness[1, 1] < brightness[1, 0] < 0.8
    assert pixels[:, :500].min() < 0.2  # the name


def test_gallery_is_written_from_findings(tmp_path):
    folder = gallery_build().publish(made_findings(), tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        "claims.md", "figures.md", "findings.json", "height-width.png", "height-width.svg", "settings.md", "tables.md",
    }  # fmt: skip
    claims = (folder / "claims.md").read_text("utf-8")
    assert "| about 1 | 0.9877 | — | at least 0.9 | ● agrees at small scale |" in claims
    assert "Profile `quick`, seeds 0..2, 2 CPU cores, torch 2.6.0, 2 min 21 s, commit `0123456789ab`." in claims
    assert Findings.from_json((folder / "findings.json").read_bytes()) == made_findings()
    settings = (folder / "settings.md").read_text("utf-8")
    assert "| `model.width` | 64 | 400 |" in settings
    tables = (folder / "tables.md").read_text("utf-8")
    assert tables == "**Heights.** By width.\n\n| width | height |\n| --- | --- |\n| 1 | 0.5 |\n| 2 | — |\n"


def of_two_studies() -> list[Findings]:
    """Findings of two studies.

    One claim in its band in the paper's setting, one outside in another, and one of another work.
    """
    found = []
    for shown in ("anchor/identity", "anchor/order"):
        ends = ("first", "second", "third")
        first, second, third = (replace(made_findings().claims[0].claim, id=f"{shown}/{end}") for end in ends)
        results = (
            first.judge(0.95, "quick", paper_setting=True),
            second.judge(0.1, "quick"),
            replace(third, other_work=True).judge(0.1, "quick"),
        )
        found.append(replace(made_findings(), study=shown, claims=results))
    return found


def test_gallery_rewrites_the_results_of_the_readme(tmp_path):
    build, readme = gallery_build(), tmp_path / "README.md"
    readme.write_text(f"before\n{build.BEGIN}\nformer rows\n{build.END}\nafter\n", "utf-8")
    for _ in range(2):
        build.write_readme(readme, of_two_studies())
    text = readme.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "\n| all three | 4 | 2 / 0 | 0 / 0 | 0 / 0 | 0 / 2 | 0 | 0 |\n\n0 of all also hold" in text
    assert "Counted apart are 2 claims of other works and questions of our own: differs at small scale 2." in text
    assert "former rows" not in text


def test_the_counts_have_a_row_for_each_paper():
    """By the paper that a claim's source names, also where one study has claims of two."""
    made = made_findings().claims[0].claim

    papers = "anchor functions", "truncated weights", "stacked attention heads"
    anchor, truncated, stacked = (replace(made, source=f"{paper}, section 1") for paper in papers)
    text = gallery_build().counts_table(
        [
            anchor.judge(0.95, "quick"), anchor.judge(0.1, "quick"), anchor.judge(None, "quick"),
            replace(truncated, exact=True).judge(0.1, "quick"),
            replace(truncated, theory=True).judge(0.95, "paper", paper_setting=True),
            replace(truncated, theory=True).judge(0.1, "quick"), truncated.judge(0.95, "paper", paper_setting=True),
            stacked.judge(0.95, "quick", interval=(0.1, 1.0), units=(0.1, 1.0)), stacked.judge(0.95, "quick", own=True),
        ]
    )  # fmt: skip
    assert text.splitlines()[2:] == [
        "| anchor functions | 3 | 0 / 0 | 0 / 0 | 0 / 0 | 1 / 1 | 0 | 1 |",
        "| truncated weights | 4 | 1 / 0 | 0 / 1 | 1 / 1 | 0 / 0 | 0 | 0 |",
        "| stacked attention heads | 1 | 0 / 0 | 0 / 0 | 0 / 0 | 0 / 0 | 1 | 0 |",
        "| all three | 8 | 1 / 0 | 0 / 1 | 1 / 1 | 1 / 1 | 1 | 1 |",
    ]


def test_the_ledger_counts_each_claim_by_its_strongest_evidence():
    made = made_findings()
    claims = [replace(made.claims[0].claim, id=f"anchor/identity/{end}") for end in "abc"]
    quick = replace(made, claims=(claims[0].judge(None, "quick"), *(one.judge(0.1, "quick") for one in claims[1:])))
    values = (0.95, 0.2, None)
    paper = replace(
        made,
        provenance=replace(made.provenance, profile="paper"),
        claims=tuple(one.judge(value, "paper", paper_setting=True) for one, value in zip(claims, values, strict=True)),
    )
    text, shown = gallery_build().ledger_text([quick, paper]), "[`anchor/identity`](studies/identity.md)"
    assert f"| {shown} | Made | 3 | 1 | 1 |  |  |  | 1 |  |  |" in text
    assert "| ✗ contradicted | 1 | 1 | 0 | 0 | 0 |\n" in text
    assert "| ○ differs at small scale | 1 | 0 | 0 | 0 | 1 |\n" in text
    assert f"| {shown} | It is high | about 1 | 0.2 | ✗ contradicted (in the paper's own setting) |" in text
    assert f"| {shown} | It is high | about 1 | 0.1 | ○ differs at small scale |" in text
    assert text.count("- `anchor/identity`: Profile `quick`") == text.count("- `anchor/identity`: Profile `paper`") == 1


@pytest.mark.parametrize(
    ("control", "shown", "passes"),
    [
        (Control(0.95, "0.9 to 1 over 2 seeds"), "0.95 (0.9 to 1 over 2 seeds)", True),
        (Control(0.1), "0.1", False),
        (Control(inf), "inf", False),
        (Control(None, "fails: ValueError: none"), "no value (fails: ValueError: none)", False),
    ],
)
def test_the_gallery_shows_what_controls_give(control, shown, passes):
    """And marks the claims that they pass, in the ledger, too."""
    build, made = gallery_build(), made_findings()
    for field, cells, word in (("untrained", shown, "untrained"), ("other_task", f"— | {shown}", "for another task")):
        findings = replace(made, claims=(replace(made.claims[0], **{field: control}),))
        mark = f", also holds {word}" * passes
        assert f"| 0.9877 | {cells} | at least 0.9 | ● agrees at small scale{mark} |" in build.claims_text(findings)
        ledger = build.ledger_text([findings])
        assert f"| Made | 1 |  |  |  |  | 1 |  |  |  | {'1' if passes and field == 'untrained' else ''} |" in ledger
        listed = ledger.partition(f"## Claims that also hold {word}")[2].partition("\n## ")[0]
        assert ("It is high" in listed) == passes


def test_settings_within_settings_and_those_of_a_pretrained_model_which_is_named():
    shown = gallery_build().settings_text(study("retrieval/language-models"), "quick")
    differing = shown.partition("<details>")[0]
    assert "| `manner.begun` | true | false |" in differing and "`manner.chat`" not in differing
    shown = gallery_build().settings_text(study("language/heads"), "quick")
    assert "| `model` | smollm2 | meta-llama/Llama-2-7b-hf |" in shown
    assert "| `draws` | 50 | 50 |" in shown.partition("What is the same in both")[2]
    assert "| `steps` | 0, 1, 2, " in gallery_build().settings_text(study("language/along-training"), "quick")
    source = replace(made_findings().provenance, model="smollm2, 134.5 M parameters")
    assert ", smollm2, 134.5 M parameters, seeds" in gallery_build().source_text(source)


def test_the_second_model_has_folders_beside_the_first_for_studies_that_open_one():
    build = gallery_build()
    assert build.profiles_of("language/noise") == ("quick", "paper", "quick@gemma3")
    assert "quick@gemma3" not in build.profiles_of("anchor/identity")
    folder = build.folder_of("language/noise", Path("out"), build.beside_of("quick@gemma3"))
    assert folder == Path("out/language-noise-gemma3")
    assert build.folder_of("language/noise", Path("out"), build.beside_of("quick")) == Path("out/language-noise")
    assert build.folder_of("anchor/order", Path("out"), build.beside_of("scaled")) == Path("out/anchor-order-scaled")


def test_two_models_are_side_by_side():
    made = made_findings()
    first = replace(made, provenance=replace(made.provenance, model="smollm2, 134.5 M parameters"))
    low, alone = (made.claims[0].claim.judge(0.5, "quick@gemma3"), replace(made.claims[0].claim, id="other/claim"))
    second = replace(made, claims=(low,), provenance=replace(made.provenance, model="gemma3, 268.1 M parameters"))
    both = replace(first, claims=(*made.claims, alone.judge(1, "quick")))
    lines = gallery_build().models_text(both, second).splitlines()
    assert lines[0] == "| claim | paper | accepted | smollm2 | gemma3 | both |"
    cells = "| 0.9877: ● agrees at small scale | 0.5: ○ differs at small scale | disputed |"
    assert lines[2:4] == [f"| It is high | about 1 | at least 0.9 {cells}", ""]
    assert lines[-1] == "Both models decide 0 of 1 claims the same way; the others count as undecided, 1 as disputed."
    high = replace(second, claims=(replace(low, value=0.95),))
    assert "| 2 of 2 models |" in (text := gallery_build().models_text(first, high)) and "decide 1 of 1" in text
    assert "decide 0 of 0" in gallery_build().models_text(first, replace(high, claims=()))


def test_the_page_of_a_study_has_the_verdict_that_counts(tmp_path):
    """Where two models decide a claim in opposite ways, as in the ledger."""
    build, made = gallery_build(), replace(made_findings(), study="language/heads")
    other = replace(made, profile="quick@gemma3", claims=(made.claims[0].claim.judge(0.5, "quick@gemma3"),))
    counted = {(made.claims[0].claim.id, "quick"): ledger([made, other])[0].strongest}
    own, second = (build.publish(one, tmp_path, beside, counted) for one, beside in ((made, ""), (other, "gemma3")))
    assert "| ◐ undecided, disputed |" in (own / "claims.md").read_text("utf-8")
    assert "| ○ differs at small scale |" in (second / "claims.md").read_text("utf-8")
    assert Findings.from_json((own / "findings.json").read_bytes()) == made
    assert "| ◐ undecided, disputed |" in build.ledger_text([made, other])


def test_gallery_names_the_studies_that_have_not_been_run(tmp_path, capsys):
    assert gallery_build().main(["--store", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "anchorlab study retrieval/depth --profile quick" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_published_ledger_is_that_of_the_published_findings():
    ledger = (GALLERY / "ledger.md").read_text("utf-8")
    assert ledger == gallery_build().ledger_text(published()), "run docs/gallery/build.py --published"


@pytest.mark.slow
def test_the_published_costs_are_those_of_the_settings_of_today():
    costs = (GALLERY / "costs.md").read_text("utf-8")
    assert costs == gallery_build().costs_text(published()), "run docs/gallery/build.py --published"


def test_the_settings_of_a_study_give_its_costs():
    """Written from one source: what a paper's setting costs stands in the study's settings as in the table of all."""
    build = gallery_build()
    rows = [
        line.split(" | ") for line in (GALLERY / "costs.md").read_text("utf-8").splitlines() if line.startswith("| [")
    ]
    assert len(rows) > 20
    for link, profile, _, seeds, hours, each, *_ in rows:
        if profile == "`paper`":
            settings = (build.folder_of(link[4 : link.index("`]")], GALLERY) / "settings.md").read_text("utf-8")
            assert f"{profile} {hours}{f' ({each} a seed)' if seeds != '1' else ''}" in settings, link


HOURS = re.compile(r"core-?hours?|\d\s?hours?\b|\b(an?|one|two|three) hours?\b", re.IGNORECASE)


def test_hours_of_trainings_are_written_by_no_hand():
    """Neither on a study's page nor in a profile's note: `build.py` writes them, from one estimate."""
    written = {
        path.name: path.read_text("utf-8") for path in [*(DOCS / "studies").glob("*.md"), DOCS / "results.md", README]
    }
    written |= {f"{known}, {key}": one.note for known in STUDIES for key, one in study(known).profiles.items()}
    assert {where: found[0] for where, text in written.items() if (found := HOURS.search(text))} == {}


def test_every_study_of_the_ledger_has_a_page_and_the_readme_the_marks_of_the_gallery():
    build = gallery_build()
    for link in map(build.page_link, STUDIES):
        (path,) = re.findall(r"\((.*)\)", link)
        assert (DOCS / path).exists(), link
    build = gallery_build()
    text = README.read_text("utf-8")
    assert text.count(build.BEGIN) == text.count(build.END) == 1


@pytest.mark.slow
def test_the_example_of_a_task_keeps_the_contract():
    load(ROOT / "examples" / "own_task.py")  # registers it
    check_task(task("mine/largest-digit", length=8))


def test_own_study_runs_and_reads_back_and_its_spread_is_that_of_the_gain(tmp_path):
    own = load(ROOT / "examples" / "own_study.py")
    store = Store(tmp_path)
    findings = run_study(own.STUDY, "smoke", store, workers=1)
    assert [(result.scope, len(result.units)) for result in findings.claims] == [("own", 5)]
    assert (findings_directory(store, own.STUDY.name, "smoke") / "findings.json").exists()
    assert findings.figures[0].lines[0].x == own.DECAYS
    accuracy = torch.tensor([[0.1, 0.3], [0.5, 0.5], [0.9, 0.0], [0.2, 0.2]])  # the gains of the second: 0.4 and 0.2
    seen = seen_by_hand(own.Seen, accuracy=dict(zip(own.DECAYS, accuracy, strict=True)))
    result = judge(own.STUDY.claim(own.helps), own.helps(seen), "quick")
    assert (round(result.value, 6), result.spread) == (0.3, "0.2 to 0.4 over 2 seeds")


def test_the_separation_on_the_page_about_files_is_that_of_the_task():
    (block,) = blocks(DOCS / "how_to" / "anchor_function.md", "toml")
    written = tomllib.loads(block)["separation"]
    assert Combined.parse(written) == task("anchor/composite").separation


@pytest.mark.slow
def test_the_page_on_varied_studies_prints_a_study_of_its_own_name(tmp_path):
    said = run_page("vary", tmp_path)
    assert "supported" in said and "reproduced" not in said
    assert (tmp_path / "runs" / "studies" / "anchor-identity-heads-3-seeds-0-to-2" / "smoke").is_dir()


def test_own_attention_is_detected_and_patched_and_own_module_trained_and_looked_into(capsys, tmp_path, monkeypatch):
    load(ROOT / "examples" / "own_attention.py").main()
    said = capsys.readouterr().out
    assert said.count("previous_token") == said.count("shape: (44, 10)") == 2 and said.count("recovered") == 2
    monkeypatch.setenv("ANCHORLAB_STORE", str(tmp_path))
    load(ROOT / "examples" / "own_module.py").main(duration=3)
    assert "memory[0]: member 2, batch 100, position 9, width 64" in capsys.readouterr().out


@pytest.mark.slow
def test_taking_a_model_apart_ends_in_a_proof(tmp_path):
    said = run_page("take_apart", tmp_path)
    assert said.count("shift 1") == said.count("broadcast from anchor+1") == 3
    numbers = {label: float(value) for label, value in re.findall(r"(?m)^([a-z][\w' ]+): ([\d.]+)", said)}
    assert numbers["as it is"] > 0.98
    assert numbers["exact shift"] > 0.98 and numbers["exact shift and broadcast"] > 0.98
    assert numbers["layer 0's head off"] < 0.3
    assert numbers["positions alone"] < 0.3 < numbers["tokens alone"]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_page_on_every_circuit_finds_several(tmp_path):
    said = run_page("every_circuit", tmp_path)
    assert said.count("minimal sets: 1, 1 of them disjoint; the smallest 0.0 0.mlp 1.0") == 3
    found = re.findall(r"│ \d +┆ 0\.0\d+ +┆ (\d+) +┆ [^│]* ┆ 1 +┆ (0\.\d) +│", said)
    assert len(found) == 4 and min(int(count) for count, _ in found) > 3


@pytest.fixture(scope="module")
def store_of_pages(tmp_path_factory) -> Path:
    """A store that several pages share, as they train the same run."""
    return tmp_path_factory.mktemp("pages") / "runs"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.xdist_group("instruments")  # one process trains the run for all pages
@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("patching", r"tensor\(\[\[1\.0000,"),  # the stream at the key recovers everything
        ("probe", r"at the end (0\.9|1\.0)\d*, untrained 0\.[0-3]"),
        ("match_heads", r"│ 0 +┆ 1 +┆ 1 +┆ 1 +┆ 1\.0"),  # the reference's heads are their own
        ("cka", r"tensor\(\[\[1\.0000, 0\.\d"),  # a layer is like itself, and less like the next
        ("steering", r"┆ 1 +┆ 2\.0 +┆ (0\.[89]\d*|1\.0) +┆ 0\.[01]"),  # far along it most answer the token
        ("path_patching", r"╡\n│ \d +┆ 0\.\d +┆ 1\.\d +┆ k +┆"),  # layer 0 reaches keys most
    ],
)
def test_the_pages_of_instruments_print_what_they_say(page, printed, store_of_pages, tmp_path):
    said = run_page(page, tmp_path, store_of_pages)
    assert re.search(printed, said), said
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_scores_of_edges_are_what_the_page_says(tmp_path):
    """Within 0.1, as rounding differs between machines."""
    said, shown = run_page("score_edges", tmp_path), "".join(blocks(DOCS / "how_to" / "score_edges.md", "text"))
    number = r"-?\d+\.\d(?![.\d])(?=[,\]\n])"
    assert re.sub(number, "", said) == re.sub(number, "", shown)
    found, printed = ([float(each) for each in re.findall(number, text)] for text in (said, shown))
    assert found == pytest.approx(printed, abs=0.11)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.nightly
def test_methods_score_what_the_page_says(tmp_path):
    said, shown = run_page("score_a_method", tmp_path), "".join(blocks(DOCS / "how_to" / "score_a_method.md", "text"))
    number = r"-?\d\.\d+"
    assert re.sub(number, "", said).split() == re.sub(number, "", shown).split()
    found, printed = ([float(each) for each in re.findall(number, text)] for text in (said, shown))
    assert found == pytest.approx(printed, abs=0.021)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmark", "rankings.json"]


@pytest.mark.usefixtures("smollm2")
def test_opening_a_language_model_finds_what_the_page_says(tmp_path):
    said = run_page("language_models", tmp_path)
    assert "[' Paris'," in said
    assert re.search(r"blocks\.23\.attn\.hook_z\W+4\W+-4\.0", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.usefixtures("smollm2")
def test_the_page_on_retrieval_questions_runs(tmp_path):
    said = run_page("retrieval_prompts", tmp_path)
    assert "What is the value of" in said
    assert re.search(r"(?m)^mean over prior \d+$", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.usefixtures("smollm2")
def test_the_page_on_a_hidden_fact_brings_it_out(tmp_path):
    said = run_page("hidden_fact", tmp_path)
    before, after = re.findall(r"(?m)^Madrid is located in (\w+)", said)
    assert (before, after) == ("the", "Spain")
    assert "[(' the', 0.27" in said and "[(' Spain', 0.3" in said
    full, cut = map(float, re.findall(r"perplexity \(([\d.]+), ([\d.]+)\)", said)[0])
    assert full < 40 < cut
    right, others = (float(re.findall(rf"{name} (-?[\d.]+)", said)[0]) for name in ("word", "countries"))
    assert right > 0.5 and others > 0.5  # wrong countries rise as the right one does
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.usefixtures("smollm2")
def test_a_circuit_of_a_language_model_is_found(tmp_path):
    said = run_page("language_circuits", tmp_path)
    assert "70651 edges" in said
    shares = [tuple(map(float, each)) for each in re.findall(r"stay: (-?[\d.]+), random (-?[\d.]+)", said)]
    assert (shares[0], shares[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert shares[3][0] > 0.5 and abs(shares[3][1]) < 0.1
    assert len(re.findall(r"→ \S+: -?[\d.]+, -?[\d.]+, -?[\d.]+$", said, re.MULTILINE)) == 5
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_finding_a_circuit_tells_what_the_page_says(tmp_path):
    said = run_page("circuits", tmp_path)
    for path in ("0.0 key 1 → anchor 1", "1.0 asked → key 1"):
        assert said.count(path) == 3  # found, cut, along training
        maps, live = map(float, re.findall(rf"cut {path}: maps ([\d.]+), live ([\d.]+)", said)[0])
        assert live > 1 and (maps < live / 2) == path.startswith("0.0")
    assert re.findall(r"tensor\(\[(\d+)", said) and "nan" not in said
