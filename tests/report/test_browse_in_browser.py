"""The page over a store of 10 000 runs in a headless browser: table, filter, order, curves, studies."""

import json
import re
import zlib
from dataclasses import replace

import pytest

from anchorlab.report.browse import StudyRow, browser_page, write_browser
from anchorlab.runs import Cell, Entry, Index, Store
from tests.browser import until
from tests.report.hand_made_findings import make_findings

RUNS = 10_000
PAINT, FILTER = 1000, 100  # milliseconds


def entry(number):
    spec = {"model": {"layers": number % 4, "heads": number // 4 % 3}, "members": {"seeds": [number, number + 1]}}
    changed = (10**9 + 60 * number) * 10**9
    return Entry(f"{number:020x}", "finished", f"task {number % 2}", 2, 1_000_000, changed, spec, [])


ENTRIES = [entry(number) for number in range(RUNS)]
ENDS = {one.address: {"test.accuracy": at / RUNS, "test.loss": 2.0} for at, one in enumerate(ENTRIES)}


def curves_of(at):
    """From 0 to the value at the end, each band 0.1 wide."""
    end = at / RUNS
    mean = [0, end / 2, end]
    low, high = ([0, *(one + edge for one in mean[1:])] for edge in (-0.1, 0.1))
    made = [
        {"split": "test", "metric": "accuracy", "steps": [0, 50, 100], "mean": mean, "low": low, "high": high},
        {"split": "test", "metric": "loss", "steps": [0, 100], "mean": [5, 2], "low": [5, 1], "high": [5, 3]},
    ]
    return zlib.compress(json.dumps(made).encode())


class Ends(Index):
    def ends(self, entries):
        return ENDS


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    root = tmp_path_factory.mktemp("browse")
    curves = {one.address: curves_of(at) for at, one in enumerate(ENTRIES)}
    studies = [StudyRow(make_findings(), "studies/report.html")]
    path = root / "browse.html"
    path.write_text(browser_page(Store(root / "store"), ENTRIES, Ends(root / "store"), studies, curves))
    return path


@pytest.fixture
def opened(visit, page_file):
    return lambda width=1280, scheme="light": visit(page_file, width, scheme)


def column(page, name):
    names = page.locator("#table thead th").evaluate_all("cells => cells.map((one) => one.dataset.name)")
    at = names.index(name)
    return page.locator("#table tbody tr[data-row]").evaluate_all(
        f"rows => rows.map((one) => one.cells[{at}].textContent)"
    )


def look_for(page, text):
    page.locator("#filter").fill(text)
    return page.inner_text("#status")


@pytest.mark.nightly
def test_it_is_painted_and_filtered_at_once(opened):
    painted, name = [], "performance.getEntriesByName('first-contentful-paint')"
    for _ in range(3):  # the shortest, as below
        page = opened()
        until(lambda page=page: page.evaluate(f"{name}.length"))
        painted.append(page.evaluate(f"{name}[0].startTime"))
    assert min(painted) < PAINT, painted
    times = page.evaluate(
        """() => ["layers=2", "layers>=1 heads!=0 task", "accuracy>0.5", "seeds=77", "task 1", ""].map((text) => {
            const box = document.getElementById("filter");
            const once = () => {
                const began = performance.now();
                box.value = text;
                box.dispatchEvent(new Event("input"));
                document.body.offsetHeight; // lays out what changed
                return performance.now() - began;
            };
            return Math.min(once(), once(), once()); // without what other programs take of the machine
        })"""
    )
    assert max(times) < FILTER, times


def test_only_rows_in_view_are_in_the_document_and_scrolling_reaches_all(opened):
    page = opened()
    assert page.locator("#table tbody tr[data-row]").count() < 80
    assert column(page, "run")[0] == ENTRIES[-1].address  # the newest first
    page.locator("#grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    until(lambda: page.evaluate(f"document.querySelector('#table tbody').textContent.includes('{ENTRIES[0].address}')"))
    assert page.locator("#table tbody tr[data-row]").count() < 80
    assert page.locator("#table").get_attribute("aria-rowcount") == str(RUNS + 1)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("layers=2", [one for one in range(RUNS) if one % 4 == 2]),
        ("model.layers>2 heads<=1", [one for one in range(RUNS) if one % 4 == 3 and one // 4 % 3 <= 1]),
        ("layers!=0", [one for one in range(RUNS) if one % 4]),
        ("seeds=77", [76, 77]),
        ("test.accuracy>=0.9999", [9999]),
        ('"label=task 1" accuracy<0.0004', [1, 3]),
        ("00000000000000000aB", [one for one in range(RUNS) if "00000000000000000ab" in f"{one:020x}"]),
        ("task layers=none", []),
    ],
)
def test_conditions_and_words_choose_rows(opened, text, rows):
    page = opened()
    assert look_for(page, text) == f"{len(rows)} of {RUNS} runs, {len(rows)} MB"
    assert column(page, "run") == [ENTRIES[at].address for at in reversed(rows)][: len(column(page, "run"))]


def test_a_slip_is_named_and_leaves_the_rows(opened):
    page = opened()
    look_for(page, "layers=2")
    before = column(page, "run")
    assert look_for(page, "layers=2 leyers=3") == "the runs do not differ in leyers"
    assert column(page, "run") == before
    assert look_for(page, "") == f"{RUNS} runs, {RUNS} MB"


def test_columns_sort_both_ways_and_can_be_chosen(opened):
    page = opened()
    button = page.locator("#table thead th[data-name='metrics.test.accuracy'] button")
    button.click()  # numbers begin with the highest
    assert [float(one) for one in column(page, "metrics.test.accuracy")[:3]] == [0.9999, 0.9998, 0.9997]
    button.click()
    assert [float(one) for one in column(page, "metrics.test.accuracy")[:3]] == [0, 0.0001, 0.0002]
    assert page.locator("#table thead th[aria-sort=ascending]").get_attribute("data-name") == "metrics.test.accuracy"
    page.locator("#columns summary").click()
    page.locator(".choices input[value='metrics.test.loss']").check()
    assert set(column(page, "metrics.test.loss")) == {"2"}
    page.locator(".choices input[value='label']").uncheck()
    assert page.locator("#table thead th[data-name=label]").count() == 0


def test_curves_of_chosen_runs_lie_over_one_another(opened):
    page = opened()
    look_for(page, "accuracy>=0.9998")
    for at in range(2):
        page.locator("#table tbody tr[data-row]").nth(at).click()
    page.wait_for_selector(".uplot")
    assert page.inner_text("#hint") == "Mean over members (lowest to highest), at the end:"
    readings = page.locator("#chosen strong").all_inner_texts()
    assert readings == ["0.9999 (0.8999 to 1.1)", "0.9998 (0.8998 to 1.1)"]
    labels = page.locator("#chosen li > span:last-of-type").all_inner_texts()
    assert labels[0] != labels[1] and labels[0].startswith("task 1, ") and labels[1].startswith("task 0, ")
    over = page.locator(".u-over").bounding_box()
    page.mouse.move(over["x"] + over["width"] / 2, over["y"] + over["height"] / 2)
    until(lambda: page.evaluate("document.getElementById('hint').textContent.includes('step 50')"))
    assert page.locator("#chosen strong").nth(1).inner_text() == "0.4999 (0.3999 to 0.5999)"
    with_bands = page.locator("#plot canvas").evaluate("one => one.toDataURL()")
    page.locator("#bands").uncheck()
    until(lambda: page.locator("#plot canvas").evaluate("one => one.toDataURL()") != with_bands)
    page.locator("#metric").select_option("metrics.test.loss")
    until(lambda: page.evaluate("document.querySelector('#chosen strong').textContent.startsWith('2 (1 to 3)')"))
    page.locator("#chosen button").first.click()
    until(lambda: page.evaluate("document.querySelectorAll('#chosen li').length === 1"))
    page.locator("#clear").click()
    until(lambda: page.evaluate("!document.querySelector('.uplot, #chosen li')"))
    assert page.locator("#table input:checked").count() == 0


def test_a_curve_of_one_point_is_drawn_as_a_point(visit, tmp_path):
    point = {"split": "test", "metric": "accuracy", "steps": [100], "mean": [0.5], "low": [0.5], "high": [0.5]}
    curves = {ENTRIES[0].address: zlib.compress(json.dumps([point]).encode())}
    path, store = tmp_path / "browse.html", Store(tmp_path / "store")
    path.write_text(browser_page(store, ENTRIES[:1], Ends(store.root), [], curves))
    page = visit(path)
    page.locator("#table tbody tr[data-row]").click()
    blue = """() => {
        const canvas = document.querySelector("#plot canvas"), found = canvas.getContext("2d");
        const data = found.getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let at = 0; at < data.length; at += 4) count += data[at + 2] > data[at] + 100 && data[at + 3] > 200;
        return count;
    }"""
    until(lambda: page.locator("#plot canvas").count())
    until(lambda: page.evaluate(blue) > 20)  # a disc of nine pixels across


def test_all_columns_can_be_seen_and_a_row_is_chosen_with_the_keyboard(opened):
    page = opened(1300)
    grid = page.locator(".grid")
    assert grid.evaluate("one => one.scrollWidth <= one.clientWidth")
    page = opened()
    page.locator("#table tbody input").nth(3).focus()
    page.keyboard.press("Space")
    page.wait_for_selector(".uplot")
    assert page.evaluate("document.activeElement.closest('tr').dataset.row") == "3"
    assert page.locator("#table tbody input").nth(3).is_checked()


def test_studies_have_their_claims_and_lead_to_their_pages_and_runs(opened):
    page = opened()
    findings = make_findings()
    found = page.locator(".found")
    found.locator("summary").click()
    found.locator("tbody tr").first.wait_for()  # drawn once the browser says that it is open
    assert found.locator("tbody tr").count() == len(findings.claims)
    assert findings.claims[0].claim.statement in found.inner_text()
    assert found.locator("a").get_attribute("href") == "studies/report.html"
    found.locator(".of-study").click()
    assert page.locator("#filter").input_value() == f'"study={findings.study}"'
    assert page.inner_text("#status").startswith(f"0 of {RUNS} runs")


def test_controls_are_hidden_and_the_newest_study_is_drawn_at_first(visit, monkeypatch, tmp_path):
    """Of three trained runs of a study, one of another study and one untrained control."""
    entries = [
        Entry(f"{at:020x}", "finished", name, 1, 0, 60 * 10**9 * at, {"model": {"layers": at}, **more}, [])
        for at, (name, more) in enumerate(
            [("old", {}), ("a", {}), ("b", {}), ("control", {"trained": False}), ("c", {})]
        )
    ]
    index = Index(tmp_path)
    index.ends = lambda entries: {one.address: {"test.accuracy": 0.5} for one in entries}
    of = {one.address: frozenset({"made/old" if one.name == "old" else "made/new"}) for one in entries}
    monkeypatch.setattr("anchorlab.report.browse.studies_by_run", lambda root: of)
    curves = {one.address: curves_of(5000) for one in entries}
    long = replace(make_findings(), title="A title that wraps " * 20)
    rows = [StudyRow(make_findings(), None), StudyRow(long, None)]
    path = tmp_path / "page.html"
    path.write_text(browser_page(Store(tmp_path / "store"), entries, index, rows, curves))
    page = visit(path, 900)
    page.wait_for_selector(".uplot")
    shown = page.locator("#chosen li > span:last-of-type").all_inner_texts()
    assert [one.partition(",")[0] for one in shown] == ["c", "b", "a"]
    assert page.inner_text("#status").startswith("4 of 5 runs")
    page.locator("#untrained input").check()
    assert page.inner_text("#status").startswith("5 runs")
    page.locator("#untrained input").uncheck()
    assert look_for(page, "trained=false").startswith("1 of 5 runs")
    heights = page.locator(".tally .verdict").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert len(heights) > 2 and max(heights) < 1.1 * min(heights)


@pytest.mark.parametrize("width", [360, 820, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(opened, width, scheme):
    page = opened(width, scheme)
    page.locator("#table tbody tr[data-row]").first.click()
    page.wait_for_selector(".uplot")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    bright = [sum(map(int, re.findall(r"\d+", one)[:3])) for one in (back, ink)]
    assert (bright[0] > bright[1]) is (scheme == "light")


def test_unfinished_runs_are_drawn_at_first_with_metrics_that_no_finished_run_has(visit, tmp_path):
    store, layers = Store(tmp_path / "store"), (1, 2)
    for number in layers:
        with store.open(Cell({"model": {"layers": number}, "members": {"seeds": [0]}}, label="begun")) as run:
            run.plan({"chunks": [[0]]})
            with run.chunk(0) as chunk:
                rows = [(0, 0, step, "train", "all", "none", "loss", number - step / 10) for step in (0, 5)]
                chunk.write_state(5, {}, {"rows": rows if number == 2 else []})
    page = visit(write_browser(store))
    until(lambda: page.locator("#plot canvas").count())
    assert page.locator("#metric option").all_inner_texts() == ["train, loss"]
    (shown,) = page.locator("#chosen strong").all_inner_texts()  # the other has no curve yet
    assert shown == "1.5 (1.5 to 1.5)"
