"""Cards in a notebook: what they say, that they escape it, and how they look in light and dark."""

import shutil
from dataclasses import replace

import pytest
import torch

import anchorlab as al
from anchorlab import lens
from anchorlab.engine import run
from anchorlab.findings import Findings
from anchorlab.lens import Patching, Record
from anchorlab.runs import Run, Store
from anchorlab.tasks.task import Proof
from anchorlab.training import Evaluation, TrainedRun
from tests.browser import contrasts
from tests.lens.landscape.hand_made import made, parallel, two_of_three
from tests.papers.hand_made_circuits import FIRST, JOIN, circuit, path
from tests.report.hand_made_findings import make_findings
from tests.report.reader import Reader
from tests.small_experiments import experiment

HOSTILE = "<img src=x onerror=alert(1)>"


def read(value):
    return Reader(value._repr_html_())


@pytest.fixture(scope="module")
def every(trained):
    """One value of every class that has a card."""
    task = trained.experiment.task
    batch = task.sample("test", 50, seed=0)
    found = circuit(path(0, JOIN, cut=0.51), path(2, FIRST, cut=0.25))
    record = al.look(trained, batch, ["blocks.*.attn.hook_pattern"])
    return [
        task, task.proof(), batch, trained, Store(trained.run.path.parent), trained.ensemble(), record, found,
        make_findings(),
    ]  # fmt: skip


def test_a_task_shows_its_rule_and_examples_in_colour_and_a_proof_whether_it_holds():
    task = al.task("anchor/identity")
    shown = read(task)
    example = task.render(task.sample("test", 2, seed=0).inputs)[1]
    assert "rules | identity: A x -> A(x)" in shown.text
    assert "9 tokens of a vocabulary of 201" in shown.text
    assert "; ".join(example.trace) in shown.words and example.answer in shown.words
    roles = {token.role: token.text for token in example.tokens}
    coloured = [classes for tag, classes in shown.elements if tag == "span" and classes.startswith("role-")]
    assert {"role-noise", "role-0", "role-1"} == set(coloured)
    assert roles["anchor"] in shown.words and roles["key"] in shown.words
    holds, fails = (Proof("samples", one, ("First.", "Second."), {}) for one in (True, False))
    assert "✓ holds | First. | Second." in read(holds).text
    assert "✗ does not hold" in read(fails).text
    assert ("span", "badge good") in read(holds).elements
    assert ("span", "badge bad") in read(fails).elements


def test_a_batch_shows_its_shapes_and_first_sequences_and_long_ones_stay_small():
    batch = al.task("anchor/identity").sample("test", 50, seed=0)
    shown = read(batch)
    assert "50 sequences | test | inputs | 50 × 9 | targets | 50 × 1" in shown.text
    first = [str(one) for one in batch.inputs[0].tolist()]
    assert " | ".join([*first, str(int(batch.answers[0, 0]))]) in shown.text
    assert sum(classes == "role-0" for _, classes in shown.elements) == 4  # the scored position of four sequences
    padded = replace(
        batch, positions=torch.tensor([1, 8]), answers=batch.answers.repeat(1, 2), weights=torch.tensor([[0.0, 1]] * 50)
    )
    assert " | ".join([*first, str(int(batch.answers[0, 0])), ""]) in f"{read(padded).text} | "
    assert sum(classes == "role-0" for _, classes in read(padded).elements) == 4
    vectors = read(al.task("retrieval/minimal").sample("test", 5, seed=0))
    assert ("table", "") not in vectors.elements
    long = al.task("recall/noisy").sample("train", 5, seed=0)
    assert "… 216 more" in read(long).words  # 256 tokens, of which 40 are shown


def test_a_store_shows_its_newest_runs_and_a_run_its_last_metrics(trained):
    shown = read(trained)
    last = trained.metric("loss").filter(step=4)["value"]
    assert trained.run.address in shown.words
    assert "DecoderSpec(layers=2, heads=2, width=16, hidden=24)" in shown.words
    assert f"loss | {last.mean():.4g} | {last.min():.4g} | {last.max():.4g}" in shown.text
    assert "3, seeds 0, 1, 2" in shown.words
    shown = read(Store(trained.run.path.parent))
    assert "1 run" in shown.words
    assert f"{trained.run.address[:8]} | anchor/identity | 3 | finished" in shown.text


def test_a_damaged_run_says_so(trained, tmp_path):
    folder = shutil.copytree(trained.run.path, tmp_path / trained.run.address)
    (folder / "metrics.parquet").write_bytes(b"")
    shown = read(TrainedRun(Run(folder)))
    assert "cannot be read" in shown.words
    assert any("metrics.parquet: damaged" in words for words in shown.words)


def test_an_ensemble_shows_its_architecture_and_a_record_layers_once(trained):
    shown = read(trained.ensemble())
    assert "3 members" in shown.words
    assert "DecoderSpec(layers=2, heads=2, width=16, hidden=24)" in shown.words
    count = sum(one.numel() for one in trained.model(0).parameters())
    assert f"{count:,}" in shown.words
    record = al.look(trained, trained.experiment.task.sample("test", 5, seed=0), ["blocks.*.attn.hook_pattern"])
    assert "blocks.*.attn.hook_pattern | 0..1 | member 3, batch 5, head 2, query 9, key 9" in read(record).text
    alone = Record({"x": torch.zeros(1, 2)}, {"x": ("member", "batch")}, torch.zeros(2, 3))
    assert "site | axes | x | member 1, batch 2" in read(alone).text


def test_findings_show_claims_and_titles(findings):
    shown = read(findings)
    assert "✗ 1 contradicted | ● 1 agrees at small scale | ○ 1 differs at small scale | — 1 not measured" in shown.text
    assert "● agrees at small scale | It is high. | about 1 | 0.9877" in shown.text
    assert "Height against size" in shown.words and "A map" in shown.words


def test_circuits_and_landscapes_show_their_paths():
    shown = read(circuit(path(0, JOIN, cut=0.51), path(2, FIRST, cut=0.25)))
    assert "2 paths in 2 heads" in shown.words
    assert "0.0 | x1 of pair 1 | x0 of pair 1 | 0.9 | 0.51" in shown.text
    assert "2.0 | query x0 | x1 of pair 1 | 0.9 | 0.25" in shown.text
    shown = read(made(two_of_three, parallel))
    assert "32 subsets" in shown.words
    assert "0 | 0 | 1 | 0.1 | 3 | 0.1 1.0 1.1 | 1 | 0.1" in shown.text
    assert "1 | 0 | 1 | 0.1 | 3 | 1.2 | 3" in shown.text
    assert repr(made(parallel)).splitlines() == ["Landscape of 1 members and 32 subsets of 5 units"]


def hostile_values(trained, tmp_path):
    findings = make_findings()
    claim = replace(findings.claims[0].claim, statement=HOSTILE, paper=HOSTILE)
    figure = replace(findings.figures[0], title=HOSTILE)
    yield al.AnchorFunction(name=HOSTILE)
    yield Proof("samples", True, (HOSTILE,), {})
    yield replace(al.task("anchor/identity").sample("test", 2, seed=0), split=HOSTILE)
    yield Record({HOSTILE: torch.zeros(1, 2)}, {HOSTILE: ("member", HOSTILE)}, torch.zeros(2, 3))
    yield Findings(HOSTILE, HOSTILE, "", "quick", findings.provenance, (claim.judge(1, "quick"),), (figure,))
    one = experiment(duration=1, evaluation=Evaluation(size=4))
    yield run([replace(one, label=HOSTILE)], Store(tmp_path), workers=1)[0]


def test_everything_is_escaped(trained, tmp_path):
    for value in hostile_values(trained, tmp_path):
        page = value._repr_html_()
        assert "<img" not in page, type(value)
        assert HOSTILE in " ".join(Reader(page).words), type(value)


def test_cards_are_small_and_load_nothing(every):
    for value in every:
        page = value._repr_html_()
        assert len(page) < 12_000, type(value)
        assert not any(word in page for word in ("http", "<script", "<link", "@import", "url(", "src=")), type(value)
        assert Reader(page).elements[0] == ("div", "anchorlab-card")


BODIES = {
    "light": ('<body data-jp-theme-light="true">', "dark"), "dark": ('<body data-jp-theme-light="false">', "light"),
    "code": ('<body class="vscode-dark">', "light"), "system": ("<body>", "dark"),
}  # fmt: skip
JUPYTER = """
.jp-RenderedHTMLCommon table { margin-left: auto; margin-right: auto; border-collapse: collapse; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { text-align: right; max-width: none; padding: 0.5em; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: #f5f5f5; }
.jp-RenderedHTMLCommon dt { float: left; width: 20px; } .jp-RenderedHTMLCommon code { background: #eee; }
"""


@pytest.mark.parametrize("theme", BODIES)
@pytest.mark.parametrize("width", [1100, 360])
def test_cards_can_be_read_in_every_theme(every, browser, theme, width):
    body, system = BODIES[theme]
    cards = "".join(f'<div class="jp-RenderedHTMLCommon">{value._repr_html_()}</div>' for value in every)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=system)
    try:
        page.set_content(f"<!DOCTYPE html><html><style>{JUPYTER}</style>{body}{cards}</body></html>")
        backs = page.evaluate(
            "[...document.querySelectorAll('.anchorlab-card')].map((one) => getComputedStyle(one).backgroundColor)"
        )
        assert set(backs) == {"rgb(255, 255, 255)" if theme == "light" else "rgb(17, 22, 28)"}
        found = contrasts(page, ".anchorlab-card")
        assert len(found) > 100 and found[0][0] >= 4.5, found[0]
        overflow = "[...document.querySelectorAll('.anchorlab-card')].map((one) => one.scrollWidth - one.clientWidth)"
        assert set(page.evaluate(overflow)) == {0}
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        aligned = "[...new Set([...document.querySelectorAll('td')].map((one) => getComputedStyle(one).textAlign))]"
        assert page.evaluate(aligned) == ["left"]
    finally:
        page.close()


def test_a_measurement_prints_short_and_shows_its_table_if_it_has_one(trained):
    clean, corrupted = torch.tensor([1.0]), torch.tensor([0.0])
    difference = torch.arange(10.0).view(1, 1, 10) / 10
    found = Patching(("blocks.0.attn.hook_z",), ("head",), clean, corrupted, difference)
    columns = "member, site, layer, head, difference, clean, corrupted, recovered"
    assert repr(found) == f"Patching with 10 rows in .table: {columns}"
    shown = read(found)
    assert "10 rows" in shown.words and "2 more rows in .table" in shown.words
    assert "0 | blocks.0.attn.hook_z | 0 | 7 | 0.7 | 1 | 0 | 0.7" in shown.text
    found = lens.attribute(trained, trained.experiment.task.sample("test", 3, seed=0).inputs)  # to all tokens
    assert repr(found).startswith("Attribution without a table: tokens: contributions to all tokens make no table")
    assert "without a table" in read(found).words
