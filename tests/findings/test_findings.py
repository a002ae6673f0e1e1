import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorlab import findings as of
from anchorlab.errors import SpecError
from anchorlab.findings.seal import seal
from anchorlab.findings.view import AttentionView, ViewPath
from anchorlab.lens import AttentionRule, Circuit, CircuitPath
from anchorlab.studies.circuit_panel import circuit_panel
from anchorlab.tasks.batch import Example, Token
from tests.findings.hand_made import FIGURES, MAPS, SCATTERS
from tests.report.hand_made_findings import PROVENANCE

CLAIM = of.Claim("a/b", "It is high.", "Fig 1", "about 1", "its height", (0.9, 1.0))
PATH = ViewPath(0, 0, "key → anchor", (((1, 0),),))
EXAMPLE = Example((Token("4", "key"), Token("3", "anchor")), ("found 3",), "4", "test")


def view(patterns, **changes):
    given = {"title": "v", "examples": [EXAMPLE], "steps": [0, 10], "patterns": patterns} | changes
    return AttentionView.of(**given)


def test_findings_go_to_json_and_back():
    findings = of.Findings(
        "a/b",
        "Title",
        "Summary with </script>.",
        "quick",
        PROVENANCE,
        (CLAIM.judge(0.95, "quick", "0.9 to 1", paper_setting=True), CLAIM.judge(None, "quick")),
        (
            *(
                figure for figure in FIGURES if not isinstance(figure, of.TimelineFigure)
            ),  # an event at NaN equals no other
            replace(FIGURES[MAPS], seeds="0"),
            replace(FIGURES[SCATTERS], value_names=("no", "yes")),
        ),
        (of.Table("t", "c", ("n", "v", "w"), ((1, 0.5, "x"), (2, None, "1"))),),
        (view(torch.eye(2).expand(2, 1, 1, 1, 2, 2), predicted=[["4"], ["5"]], circuits=[[PATH]]),),
    )
    text = findings.to_json()
    again = of.Findings.from_json(text)
    assert again == findings
    assert again.to_json() == text
    assert [type(cell) for cell in again.tables[0].rows[0]] == [int, float, str]
    assert again.tables[0].rows[1][2] == "1"


def test_findings_of_before_seeds_of_figures_and_controls_are_read():
    figure = of.LineFigure("t", "c", "x", "y", (of.line("a", [1, 2], [[0, 1]]),))
    findings = of.Findings("a/b", "t", "s", "quick", PROVENANCE, figures=(figure,))
    old = json.loads(findings.to_json())
    del old["figures"][0]["seeds"]
    old["figures"][0]["provenance"] = None
    assert of.Findings.from_json(json.dumps(old)) == findings
    old["figures"][0]["provenance"] = {"profile": "other"}
    with pytest.raises(SpecError, match=r"figures\.0.*provenance"):
        of.Findings.from_json(json.dumps(old))
    controlled = CLAIM.judge(0.95, "quick", untrained=of.Control(0.1, "0 to 0.2 over 2 seeds"))
    findings = of.Findings("a/b", "t", "s", "quick", PROVENANCE, (controlled,))
    assert of.Findings.from_json(findings.to_json()) == findings
    old = json.loads(findings.to_json())
    del old["claims"][0]["untrained"]
    assert of.Findings.from_json(json.dumps(old)).claims == (CLAIM.judge(0.95, "quick"),)


def test_findings_print_as_verdicts_and_in_one_line(findings):
    passed = CLAIM.judge(0.95, "quick", untrained=of.Control(0.9))
    results = (CLAIM.judge(0.95, "quick"), CLAIM.judge(0.5, "quick"), CLAIM.judge(math.nan, "quick"), passed)
    lines = str(of.Findings("a/b", "t", "s", "quick", PROVENANCE, results)).splitlines()
    assert lines[0] == f"a/b, {PROVENANCE.line}"
    assert lines[1:] == [
        "● agrees at small scale: It is high. (0.95)", "○ differs at small scale: It is high. (0.5)",
        "— not measured: It is high.", "● agrees at small scale: It is high. (0.95), also holds untrained",
    ]  # fmt: skip
    assert repr(findings) == "Findings of made/by-hand, profile quick: 4 claims, 2 figures, 1 table, 1 view"


def test_lines_have_mean_and_band_and_values_that_are_not_finite_survive_json():
    figure = of.LineFigure("t", "c", "x", "y", (of.Line("a", (1, 2), (math.nan, math.inf)),))
    findings = of.Findings("a/b", "t", "s", "quick", PROVENANCE, figures=(figure,))
    mean = of.Findings.from_json(findings.to_json()).figures[0].lines[0].mean
    assert math.isnan(mean[0])
    assert mean[1] == math.inf
    table = of.Table("t", "c", ("a", "b", "c"), ((math.nan, math.inf, 0.5),))  # such as of a seed that diverged
    assert table.rows == ((None, None, 0.5),)  # as they are shown
    findings = of.Findings("a/b", "t", "s", "quick", PROVENANCE, tables=(table,))
    assert of.Findings.from_json(findings.to_json()) == findings
    made = of.line("a", torch.tensor([1, 2]), torch.tensor([[0.0, 1.0], [1.0, 5.0]]))
    assert made == of.Line("a", (1, 2), (0.5, 3), (0, 1), (1, 5))
    assert of.numbers(torch.tensor([1, 2])) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"study"', '"stdy"', r"findings\.study: field required"),
        ('"seconds": 141.0', '"seconds": "long"', r"findings\.provenance\.seconds"),
        ("{", "[", "findings: invalid JSON"),
    ],
)
def test_damaged_json_names_the_field(old, new, message):
    text = of.Findings("a/b", "t", "s", "quick", PROVENANCE).to_json()
    with pytest.raises(SpecError, match=message) as caught:
        of.Findings.from_json(text.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_a_circuits_panel_has_its_paths_and_what_is_no_role_on_the_left():
    rules = {
        (0, 1): (AttentionRule("every position", 1), 0.98), (2, 0): (AttentionRule("asked", "key"), 0.0042),
        (3, 0): (AttentionRule("asked", 0), 12.346), (4, 0): (AttentionRule("key", 2), 0.5),
        (5, 2): (AttentionRule("asked", "same token"), 0.01),
    }  # fmt: skip
    paths = tuple(CircuitPath(*head, rule, 0.9, cost, 1.0) for head, (rule, cost) in rules.items())
    losses = {"model_loss": 0.1, "loss": 0.1, "live_loss": 0.1, "empty_loss": 1.0, "rest_loss": 1.0}
    circuit = Circuit({}, paths, ("anchor", "key", "asked"), 0.2, **losses)
    assert circuit_panel("Seed 0", circuit, 6) == of.CircuitPanel(
        "Seed 0",
        ("2 before", "1 before", "same token", "every position", "anchor", "key", "asked"),
        6,
        (
            of.CircuitArrow(0, 1, query="every position", key="1 before", label="0.98"),
            of.CircuitArrow(2, 0, query="asked", key="key", label="0.004"),
            of.CircuitArrow(3, 0, query="asked", key="asked", label="12.35"),
            of.CircuitArrow(4, 0, query="key", key="2 before", label="0.50"),
            of.CircuitArrow(5, 2, query="asked", key="same token", label="0.01"),
        ),
    )


def test_a_view_keeps_thousandths_members_and_predictions():
    patterns = np.arange(2 * 1 * 1 * 3 * 2 * 2).reshape(2, 1, 1, 3, 2, 2) / 1000
    made = view(patterns)
    assert (made.layers, made.heads, made.length, made.members) == (1, 3, 2, ("member 0",))
    assert np.frombuffer(made.weights, "<u2").tolist() == list(range(24))
    assert made.examples[0].texts == ("4", "3")
    assert made.examples[0].roles == ("key", "anchor")
    made = view(np.zeros((2, 2, 1, 1, 1, 2, 2)), members=["a", "b"], predicted=[[["4"], ["5"]], [["6"], ["7"]]])
    assert made.predicted == ((("4",), ("5",)), (("6",), ("7",)))
    assert view(np.zeros((2, 1, 1, 1, 2, 2)), predicted=[["4"], ["5"]]).predicted == ((("4",), ("5",)),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: view(np.zeros((3, 1, 1, 1, 2, 2))), r"view\.patterns: has shape"),
        (lambda: view(np.zeros((2, 1, 1, 1, 2, 3))), r"view\.patterns: has shape"),
        (lambda: view(np.full((2, 1, 1, 1, 2, 2), 1.5)), "outside 0..1"),
        (lambda: view(np.full((2, 1, 1, 1, 2, 2), np.nan)), "outside 0..1"),
        (lambda: view(np.zeros((2, 1, 1, 1, 2, 2)), predicted=[["4"]]), r"view\.predicted"),
        (lambda: AttentionView("t", ("m",), (0,), (), 1, 1, 2, b""), r"view\.weights"),
        (lambda: of.Line("a", (1, 2), (1,)), r"line\.mean"),
        (lambda: of.Line("a", (1, 2), (1, 2), (1, 2)), r"line\.high"),
        (lambda: of.Map("m", ((1, 2), (3,))), r"map\.values"),
        (lambda: of.Map("m", ((1, 2),), column_ticks=("a",)), r"map\.column_ticks"),
        (lambda: of.Scatter("s", (1, 2), (1,), (1, 2)), r"scatter\.y"),
        (lambda: of.CircuitPanel("p", (), 1, ()), r"panel\.roles"),
        (lambda: of.CircuitPanel("p", ("a", "a"), 1, ()), r"panel\.roles"),
        (lambda: of.CircuitPanel("p", ("a",), 1, (of.CircuitArrow(1, 0, "a", "a", ""),)),
         r"panel\.arrows\.0: 1\.0 is not a head"),
        (lambda: of.CircuitPanel("p", ("a",), 1, (of.CircuitArrow(0, 0, "a", "b", ""),)),
         r"panel\.arrows\.0: 'b' is no"),
        (lambda: of.Scatter("s", (1, 2), (1, 2), (1,)), r"scatter\.values"),
        (lambda: of.Table("t", "c", ("a", "b"), ((1,),)), r"table\.rows\.0"),
        (lambda: of.Dots("t", ("a",), ((0,), (1,))), r"dots\.values"),
        (lambda: of.Dots("t", ("a",), ((0,),), marked=1), r"dots\.marked"),
        (lambda: of.Bars("t", (1.0,), (0.5, 0.6), (1.0,)), r"bars\.low"),
        (lambda: of.BarFigure("t", "", ("a",), (of.Bars("b", (1.0, 2.0)),), "y"), r"bars\.b: has 2 values"),
        (lambda: of.BarFigure("t", "", ("a",), (of.Bars("b", (1.0,)),), "y", (0.1, 0.2)), r"bars\.dashed"),
        (lambda: replace(FIGURES[SCATTERS], value_names=("no",)), r"figure\.value_names: name 1 .*; number the kinds"),
        (lambda: of.BarFigure("t", "c", (), (of.Bars("b", ()),), "y"), r"figure\.groups: has none"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):  # a SpecError, or pydantic's ValidationError around one
        make()


def test_any_bit_that_changes_in_kept_findings_is_noticed_or_harmless():
    figure = of.LineFigure("t", "c", "x", "y", (of.line("a", [1, 2], [[0.25, 1]]),))
    findings = of.Findings("a/b", "t", "s", "quick", PROVENANCE, (CLAIM.judge(0.95, "quick"),), (figure,))
    content = seal(findings.to_json()).encode()
    assert of.Findings.from_json(content) == findings
    noticed = 0
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert of.Findings.from_json(bytes(flipped)) == findings
        except SpecError:
            noticed += 1
    assert noticed > 0.999 * 8 * len(content)  # white space at the end may change
