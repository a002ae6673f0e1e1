"""The model that runs in the page computes what torch computes, edited heads included."""

from dataclasses import replace
from importlib.resources import files

import pytest
import torch

from anchorlab.lens import Intervention, Operand, look, shift_pattern
from anchorlab.models import DecoderSpec, RecallSpec
from anchorlab.tasks import AnchorFunction, Placement, Vocabulary
from anchorlab.training.ensemble import initialise
from anchorlab.viewer.page_data import SCRIPTS
from tests.report.hand_made_findings import make_findings
from tests.viewer.viewer_scripts import live_json, live_view, page_with

TASK = AnchorFunction(vocabulary=Vocabulary(size=14, items=(4, 11)), placement=Placement(length=7))

DECODER = DecoderSpec(layers=2, heads=2, width=12, head_width=6, hidden=10)
RECALL = RecallSpec(width=10)
GRID = {
    "decoder": DECODER,
    "one layer, four heads": DECODER.replace(layers=1, heads=4),
    "four layers": DECODER.replace(layers=4, heads=1),
    "odd widths": DECODER.replace(heads=3, width=7, head_width=3, hidden=5),
    "no residual": DECODER.replace(residual=False),
    "no output linear": DECODER.replace(output_linear=False),
    "no layer norm": DECODER.replace(layer_norm=False),
    "no feed-forward": DECODER.replace(feed_forward=False),
    "no mask": DECODER.replace(mask=False),
    "no projection": DECODER.replace(width=14),
    "values shifted": DECODER.replace(shift_values=1),
    "values shifted the other way": DECODER.replace(shift_values=-2),
    "values shifted beyond the end": DECODER.replace(shift_values=9),
    "drawn at a rate": DECODER.replace(initialisation="gamma"),
    "per block": DECODER.replace(
        layers=4,
        residual=(True, False, True, False),
        output_linear=(False, True, True, False),
        layer_norm=(True, True, False, False),
        feed_forward=(False, True, False, True),
        mask=(True, False, False, True),
    ),
    "nothing": DecoderSpec(
        layers=3, heads=2, width=14, head_width=7,
        residual=False, output_linear=False, layer_norm=False, feed_forward=False, projection=False, mask=False,
    ),
    "GPT-2's form": DECODER.replace(norm="pre", activation="gelu", biases=True, tied=True),
    "Llama's form": DECODER.replace(norm="rms", positions="rotary", activation="swiglu"),
    "no positions, norms in one block": DECODER.replace(norm="rms", positions="none", layer_norm=(True, False)),
    "rotary heads after biases": DECODER.replace(positions="rotary", activation="swiglu", biases=True, tied=True),
    "recall": RECALL,
    "recall, linear and factored": RECALL.replace(feed_forward_1="linear", feed_forward_2="none", factored_values=True),
}  # fmt: skip

RUN = """([live, member, step, sequences, edits]) => {
  const model = anchorlab.model(live);
  const typed = edits.map((edit) => (edit.pattern ? {...edit, pattern: new Float32Array(edit.pattern)} : edit));
  return sequences.map((tokens) => {
    const {length, logits, patterns} = model.run(member, step, tokens, typed);
    return {length, logits: Array.from(logits), patterns: Array.from(patterns)};
  });
}"""


@pytest.fixture(scope="module")
def page(browser):
    page = page_with(browser, "model.js")
    yield page
    page.context.close()


def drawn(spec, task=TASK, members=2):
    """An ensemble whose weights are all random, layer norms and biases too."""
    ensemble = initialise(spec, task.shape, seeds=list(range(members)))
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: value + 0.2 * torch.randn(value.shape, generator=generator) for name, value in ensemble.weights.items()
    }
    return ensemble.with_weights(weights)


def sequences(task=TASK, n=5):
    return torch.randint(0, task.shape.input_size, (n, task.shape.length), generator=torch.Generator().manual_seed(1))


def run(page, live, inputs, member=0, step=0, edits=()):
    """Logits `[batch position output]` and patterns `[batch layer head query key]` of the page."""
    found = page.evaluate(RUN, [live, member, step, inputs.tolist(), list(edits)])
    architecture, length = live["architecture"], inputs.shape[1]
    assert {one["length"] for one in found} == {length}
    logits, patterns = (
        torch.tensor([one[key] for one in found], dtype=torch.float32) for key in ("logits", "patterns")
    )
    shape = (len(found), architecture["layers"], architecture["heads"], length, length)
    return logits.view(len(found), length, architecture["outputs"]), patterns.view(shape)


def by_torch(ensemble, inputs, interventions=()):
    """The same of torch, with `member` before them."""
    record = look(ensemble, inputs, record=["blocks.*.attn.hook_pattern"], interventions=interventions)
    patterns = [record[name] for name in record if name.endswith("hook_pattern")]
    return record["output"], torch.stack(patterns, dim=2)


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", GRID)
def test_computes_what_torch_computes(page, name):
    spec = GRID[name].replace(projection=False) if name == "no projection" else GRID[name]
    ensemble, inputs = drawn(spec), sequences()
    live = live_json(live_view([ensemble], TASK, inputs))
    logits, patterns = by_torch(ensemble, inputs)
    assert logits.std() > 0.1
    for member in range(ensemble.size):
        found = run(page, live, inputs, member)
        assert_near(found[0], logits[member])
        assert_near(found[1], patterns[member])


def test_reads_sequences_shorter_than_the_longest(page):
    ensemble, inputs = drawn(DECODER), sequences()
    live = live_json(live_view([ensemble], TASK, inputs))
    logits, patterns = by_torch(ensemble, inputs[:, :4])
    found = run(page, live, inputs[:, :4], member=1)
    assert_near(found[0], logits[1])
    assert_near(found[1], patterns[1])


def own(layer, head, pattern):
    """An intervention that puts a pattern in a head's place."""
    operand = Operand(values=pattern, axes=("query", "key"))
    return Intervention(site=f"blocks.{layer}.attn.hook_pattern", where={"head": head}, rule="replace", operand=operand)


def off(layer, head):
    return Intervention(site=f"blocks.{layer}.attn.hook_z", where={"head": head}, rule="zero")


SOME = torch.randn(7, 7, generator=torch.Generator().manual_seed(2)).softmax(dim=-1)
EARLIER = torch.ones(7, 7).tril() / torch.arange(1, 8)[:, None]
EVERYWHERE = torch.full((7, 7), 1 / 7)
BY_TWO = shift_pattern(7, 2).values


@pytest.mark.parametrize(
    ("edits", "interventions"),
    [
        ([{"layer": 0, "head": 1, "rule": "off"}], [off(0, 1)]),
        ([{"layer": 1, "head": 0, "rule": "shift", "shift": 2}], [own(1, 0, BY_TWO)]),
        ([{"layer": 0, "head": 0, "rule": "uniform"}], [own(0, 0, EARLIER)]),
        ([{"layer": 1, "head": 1, "rule": "uniform"}], [own(1, 1, EVERYWHERE)]),
        ([{"layer": 0, "head": 1, "rule": "pattern", "pattern": SOME.flatten().tolist()}], [own(0, 1, SOME)]),
        (
            [
                {"layer": 0, "head": 1, "rule": "shift", "shift": 2}, {"layer": 0, "head": 1, "rule": "off"},
                {"layer": 1, "head": 0, "rule": "uniform"}, {"layer": 1, "head": 1, "rule": "uniform"},
                {"layer": 1, "head": 1, "rule": "shift", "shift": 0},
            ],
            [own(0, 1, BY_TWO), off(0, 1), own(1, 0, EVERYWHERE), own(1, 1, EVERYWHERE), own(1, 1, torch.eye(7))],
        ),
    ],
    ids=["off", "shift", "uniform before", "uniform everywhere", "pattern", "several"],
)  # fmt: skip
@pytest.mark.parametrize("shift_values", [0, 1])
def test_edits_are_the_interventions_of_the_lens(page, edits, interventions, shift_values):
    ensemble, inputs = drawn(DECODER.replace(mask=(True, False), shift_values=shift_values)), sequences()
    live = live_json(live_view([ensemble], TASK, inputs))
    logits, patterns = by_torch(ensemble, inputs, interventions)
    assert (logits - by_torch(ensemble, inputs)[0]).abs().max() > 0.01  # the edit matters
    found = run(page, live, inputs, edits=edits)
    assert_near(found[0], logits[0])
    assert_near(found[1], patterns[0])


def test_carries_the_steps_that_have_weights(page):
    early, late, inputs = drawn(DECODER), drawn(DECODER.replace(initialisation="gamma")), sequences()
    live = live_json(live_view([early, None, late], TASK, inputs))
    carried = page.evaluate("live => [0, 1, 2, 3].map((step) => anchorlab.model(live).carries(1, step))", live)
    assert carried == [True, False, True, False]
    assert not page.evaluate("live => anchorlab.model(live).carries(2, 0)", live)
    for step, ensemble in ((0, early), (2, late)):
        assert_near(run(page, live, inputs, member=1, step=step)[0], by_torch(ensemble, inputs)[0][1])
    with pytest.raises(Exception, match="does not include member 1 at step 1"):
        run(page, live, inputs, member=1, step=1)


@pytest.mark.parametrize(
    ("tokens", "edit", "message"),
    [
        ([0] * 8, {}, "tokens: has 8; give 1 to 7"),
        ([], {}, "tokens: has 0"),
        ([0, 14], {}, "tokens: 14 is not a token; give 0 to 13"),
        ([0, 1.5], {}, "tokens: 1.5 is not a token"),
        ([0, 1], {"layer": 2, "head": 0, "rule": "off"}, "there is no layer 2, head 0"),
        ([0, 1], {"layer": 0, "head": 2, "rule": "off"}, "there is no layer 0, head 2"),
        ([0, 1], {"layer": 0, "head": 0, "rule": "of"}, "unknown rule of; give off, shift, uniform, pattern"),
        ([0, 1], {"layer": 0, "head": 0, "rule": "shift", "shift": 2}, "shift 2 is not within the 2 tokens"),
        ([0, 1], {"layer": 0, "head": 0, "rule": "shift"}, "shift undefined is not within"),
        ([0, 1], {"layer": 0, "head": 0, "rule": "pattern", "pattern": [1, 0]}, "pattern should have 2 x 2 weights"),
    ],
)
def test_refuses_what_it_cannot_run(page, tokens, edit, message):
    live = live_json(live_view([drawn(DECODER)], TASK, sequences()))
    with pytest.raises(Exception, match=message):
        page.evaluate(RUN, [live, 0, 0, [tokens], [edit] if edit else []])


def test_runs_within_a_report(read):
    ensemble, inputs = drawn(DECODER), sequences()
    page = read(replace(make_findings(), figures=(), views=(live_view([ensemble], TASK, inputs),)))
    live = page.locator(".attention-view script").evaluate("element => JSON.parse(element.textContent).live")
    assert_near(run(page, live, inputs, member=1)[0], by_torch(ensemble, inputs)[0][1])
    assert page.evaluate("given => 'problem' in anchorlab.oracle(given).ask([4, 4, 4, 4, 4, 4, 4])", live["oracle"])


def test_page_takes_every_script_of_the_viewer():
    folder = files("anchorlab.viewer") / "scripts"
    assert sorted(SCRIPTS) == sorted(one.name for one in folder.iterdir() if one.name.endswith(".js"))
