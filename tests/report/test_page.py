import json
import re
from dataclasses import replace

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.findings import Control, Table
from anchorlab.report import write_report
from anchorlab.report.page import duration_text, placed, render, time_text, value_text
from anchorlab.studies import kit
from anchorlab.viewer import ViewExample, ViewPath
from tests.report.hand_made_findings import PROVENANCE
from tests.report.reader import Reader

HOSTILE = "</script></script ><script>document.title='broken'</script><b>&\u2028"


@pytest.fixture(scope="module")
def page(findings):
    return render([findings], findings.title)


def test_has_claims_values_and_provenance(page):
    text = " ".join(Reader(page).words)
    for part in (
        "Made by hand",
        "Nothing was trained for this.",
        "● agrees at small scale",
        "○ differs at small scale",
        "✗ contradicted",
        "— not measured",
        "about 1",
        "0.9877",
        "0.95 to 1 over 3 seeds",
        "at least 0.9",
        "at most 0.5",
        "0.2 to 0.3",
        "profile quick · seeds 0..2 · 2 CPU cores · commit 0123456789ab",
        "2 min 21 s",
        "0.1235",
    ):
        assert part in text, part
    assert text.count("1 agrees at small scale") == text.count("1 contradicted") == 1  # the tally


def test_a_check_of_a_theorem_says_that_its_sizes_are_ours(findings, page):
    theorem = replace(findings.claims[0].claim, theory=True)
    claims = theorem.judge(0.95, "paper", paper_setting=True), theorem.judge(0.1, "quick")
    text = " ".join(Reader(render([replace(findings, claims=claims)], findings.title)).words)
    assert "◆ agrees at our sizes" in text and "◇ differs at our sizes" in text
    assert "At our sizes: the claim is of a theorem" in text and "At our sizes: " not in " ".join(Reader(page).words)
    assert "reproduced" not in text and "in the paper's own setting" not in text


def test_one_page_for_many_studies_and_the_same_bytes_each_time(findings, tmp_path):
    pages = [write_report(findings, tmp_path / name).read_bytes() for name in ("one.html", "two.html")]
    assert pages[0] == pages[1]
    page = write_report([findings, replace(findings, study="made/twice")], tmp_path / "all.html").read_text()
    assert '<a href="#study-2">made/twice</a>' in page
    assert "<title>anchorlab report</title>" in page


def test_the_page_loads_nothing_and_identifiers_are_unique(page, findings):
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", page.replace("xlink:href", "href"))
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    page = render([findings, replace(findings, study="made/twice")], "two")
    body = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)  # a drawing twice has its clip paths twice, and alike
    identifiers = re.findall(r'\bid="([^"]+)"', body)
    assert len(identifiers) == len(set(identifiers))
    for target in re.findall(r'href="#([^"]+)"', body):
        assert target in identifiers


def test_escapes_what_findings_say(findings, read):
    view = findings.views[0]
    tokens = ViewExample((HOSTILE, *view.examples[0].texts[1:]), view.examples[0].roles, HOSTILE, trace=(HOSTILE,))
    view = replace(
        view,
        title=HOSTILE,
        members=(HOSTILE,),
        examples=(tokens, view.examples[1]),
        labels=(((HOSTILE,) * 6,) * 3,),
        recorded_only=HOSTILE,
        circuits=((ViewPath(0, 0, HOSTILE, (((8, 8),), ())),),),
    )
    figure = replace(findings.figures[0], title=HOSTILE, caption=HOSTILE, x_label=HOSTILE)
    hostile = replace(
        findings,
        title=HOSTILE,
        summary=HOSTILE,
        claims=(replace(findings.claims[0], detail=HOSTILE),),
        figures=(figure,),
        tables=(Table(HOSTILE, HOSTILE, (HOSTILE,), ((HOSTILE,),)),),
        views=(view,),
    )
    page = read(hostile)
    held = page.locator(".attention-view script").inner_text()
    assert not set("<>&") & set(held) and json.loads(held)["labels"][0][0][0] == HOSTILE
    printed = HOSTILE.replace("\u2028", "\\u2028")
    assert page.title() == page.locator("h1").inner_text() == printed
    shown = page.locator(".sequence li").first.inner_text().strip()
    assert shown == HOSTILE.strip().replace(" ", "·")  # tokens show their spaces
    assert page.locator(".data td").first.inner_text() == printed
    assert page.locator("main b").count() == 2  # the viewer's own bold answer and prediction


def test_untrained_members_and_those_of_another_task_have_columns_and_marks(findings, page):
    assert "Untrained" not in page  # no claim has a control
    first, second, *others = findings.claims
    controls = (
        replace(first, untrained=Control(0.95, "0.9 to 1")),
        replace(second, untrained=Control(None, "fails: E")),
    )
    shown = render([replace(findings, claims=(*controls, *others))], "t")
    assert shown.count('<th scope="col">Untrained</th>') == 1
    assert shown.count('<small class="mark">also holds untrained</small>') == 1
    assert '0.95<small class="mark">also holds untrained</small><small>0.9 to 1</small>' in shown
    assert "no value<small>fails: E</small>" in shown
    assert "Other task" not in shown
    first, second, *others = findings.claims
    controls = (
        replace(first, untrained=Control(0.1), other_task=Control(0.95, "0.9 to 1")),
        replace(second, untrained=Control(0.95)),
    )
    shown = render([replace(findings, claims=(*controls, *others))], "t")
    assert '<th scope="col">Untrained</th><th scope="col">Other task</th>' in shown
    mark = '<small class="mark">also holds for another task</small><small>0.9 to 1</small>'
    assert f'<td data-label="Other task">0.95{mark}</td>' in shown and shown.count(mark) == 1
    assert shown.count('<td data-label="Other task">—</td>') == len(findings.claims) - 1
    assert shown.count("trained on another task pass, too") == 1


def test_the_caption_of_a_figure_of_one_seed_names_that_seed(findings):
    shared, other = findings.figures
    page = render([replace(findings, figures=(shared, replace(other, seeds="2")))], "title")
    assert re.findall(r'<p class="source">(.*?)</p>', page) == [
        "line: mean, band: lowest to highest · profile quick · seeds 0..2 · 2 CPU cores · commit 0123456789ab",
        "profile quick · seeds 2 · 2 CPU cores · commit 0123456789ab",
    ]


def test_what_a_band_shows_is_said_once_and_only_of_a_figure_with_a_band(findings):
    for values, times in (([[0.0, 1.0], [1.0, 1.0]], 1), ([[0.0, 1.0]], 0)):
        curve = kit.curves_against("t", [1, 2], {"a": torch.tensor(values)}, x_label="x", y_label="y")
        page = render([replace(findings, figures=(curve,))], "title")
        assert [one.count("band") for one in re.findall("<figcaption>.*</figcaption>", page)] == [times]


def test_a_figure_without_a_neighbour_has_its_row_alone(findings):
    curve, maps = findings.figures
    wide = replace(maps, maps=(maps.maps[0] * 3,))
    for given, places in (
        ([curve], ["alone"]),
        ([curve, maps], ["", ""]),
        ([curve, maps, curve], ["", "", "alone"]),
        ([wide, curve, wide, curve, curve], ["wide", "alone", "wide", "", ""]),
        ([wide], ["wide"]),
        ([], []),
    ):
        assert placed(given) == list(zip(given, places, strict=True))


def test_a_lone_figure_fills_its_row_with_its_caption_beside_it(findings, read):
    curve, maps = findings.figures
    page = read(replace(findings, figures=(curve, maps, curve)), width=1400)
    row = page.locator(".figures").bounding_box()
    drawing, caption = (page.locator(f"figure.alone {part}").bounding_box() for part in (".drawing", "figcaption"))
    assert drawing["x"] == pytest.approx(row["x"], abs=1)
    assert caption["x"] > drawing["x"] + drawing["width"]
    assert caption["x"] + caption["width"] == pytest.approx(row["x"] + row["width"], abs=1)
    assert drawing["y"] <= caption["y"] < drawing["y"] + drawing["height"]
    assert drawing["width"] == pytest.approx(page.locator("figure .drawing").first.bounding_box()["width"], abs=1)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_whole_navigation_is_in_the_window(findings, read, width):
    others = [replace(findings, study=f"made/another-one-{index}") for index in range(5)]
    for page in (read(findings, width=width), read([findings, *others], width=width)):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for part in page.locator(".bar nav a, .bar button").all():
            box = part.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, part.inner_text()


def test_claims_are_read_in_the_browser_at_every_width(findings, read):
    page = read(findings)
    rows = page.locator(".claims tbody tr")
    assert rows.locator(".verdict").all_inner_texts() == [
        "● agrees at small scale", "○ differs at small scale", "— not measured", "✗ contradicted",
    ]  # fmt: skip
    assert page.locator("figure svg[role=img]").count() == 2
    assert page.get_by_role("img", name="Height against size").count() == 1
    for width in (360, 800, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_names_only_a_command_that_works(findings):
    def command(study, profile):
        found = re.search(
            r"<pre><code>(anchorlab study.*?)</code>", render([replace(findings, study=study, profile=profile)], "")
        )
        return found and found[1]

    assert command("anchor/identity", "quick") == "anchorlab study anchor/identity --profile quick"
    assert (
        command("language/heads", "quick@my gpt") == "anchorlab study language/heads --profile &#39;quick@my gpt&#39;"
    )
    assert command("own/identity", "quick") is None
    assert command("anchor/identity", "long") is None and command("anchor/identity", "quick@gpt2") is None


def test_a_page_makes_no_folders_reports_something_and_leaves_the_old_one_on_failure(findings, tmp_path):
    with pytest.raises(SpecError, match=rf"^page: there is no folder {tmp_path}/deep; make it first"):
        write_report(findings, tmp_path / "deep" / "all.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SpecError, match="is empty"):
        write_report([], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_report(findings, path, title="\ud800")  # half a surrogate pair cannot be written as UTF-8
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_values_and_durations_in_words():
    assert [value_text(value) for value in (0.123456, 12, None, float("nan"), "x", 1e-6)] == [
        "0.1235", "12", "—", "—", "x", "1e-06",
    ]  # fmt: skip
    assert [duration_text(seconds) for seconds in (4.4, 141.0, 11100.0)] == ["4 s", "2 min 21 s", "3 h 05 min"]
    assert [time_text(replace(PROVENANCE, reused=runs)) for runs in (0, 1, 2)] == [
        "2 min 21 s", "2 min 21 s, reusing 1 run", "2 min 21 s, reusing 2 runs",
    ]  # fmt: skip


@pytest.mark.parametrize("given", ["anchor/identity", 3, [PROVENANCE]])
def test_what_is_no_findings_has_no_report(tmp_path, given):
    with pytest.raises(SpecError, match=r"^report\.findings: a (str|int|Provenance) is not findings; give what al\."):
        write_report(given, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
