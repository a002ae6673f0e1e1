import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.errors import SpecError
from anchorlab.findings import Findings, Provenance
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, OneLayerSpec, RecallSpec, VectorSpec
from anchorlab.tasks import task
from anchorlab.tasks.batch import Example, Token
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.viewer import AttentionView, ViewPath
from anchorlab.viewer.live import MOST_PARAMETERS, can_run, live_model

IDENTITY = task("anchor/identity")
PROVENANCE = Provenance("quick", "0..1", "2 CPU cores", "0123456789abcdef", "2.6.0", 1.0)
SPEC = DecoderSpec(layers=1, heads=2, width=6, head_width=4, hidden=5)
EXAMPLES = [Example(tuple(Token(str(20 + at), "noise") for at in range(9)), (), "4", "test")]


def ensemble(spec=SPEC, seeds=(0, 1), dtype=torch.float32):
    return initialise(spec, IDENTITY.shape, seeds=list(seeds), dtype=dtype)


def view(live=None, labels=(), layers=1, patterns=None, **more):
    patterns = np.zeros((2, 3, 1, layers, 2, 9, 9)) if patterns is None else patterns
    return AttentionView.of("v", EXAMPLES, [0, 5, 10], patterns, ["a", "b"], labels=labels, live=live, **more)


def test_live_model_has_every_weight_unchanged():
    early, late = ensemble(), ensemble(seeds=(2, 3))
    live = live_model([early, None, late], IDENTITY)
    names = [weight.name for weight in live.weights]
    assert names == [name for name, _ in early.template.named_parameters()]
    for member in range(2):
        assert live.data[member][1] is None
        for step, trained in ((0, early), (2, late)):
            numbers = np.frombuffer(live.data[member][step], "<f4")
            for weight in live.weights:
                size = int(np.prod(weight.shape))
                carried, numbers = numbers[:size].reshape(weight.shape), numbers[size:]
                assert np.array_equal(carried, trained.weights[weight.name][member].numpy())
            assert len(numbers) == 0
    assert live.texts[:3] == ("0", "1", "2")
    assert len(live.texts) == 201
    assert json.loads(live.oracle)["anchors"] == [3]


def test_live_model_of_other_precisions_and_tasks():
    exact = ensemble(dtype=torch.float64)
    live = live_model([exact], IDENTITY)
    assert np.frombuffer(live.data[1][0], "<f4")[0] == np.float32(exact.weights["embed.W_E"][1, 0, 0].item())
    recall = task("recall/noisy", length=8)
    live = live_model([initialise(RecallSpec(width=4), recall.shape, seeds=[0])], recall)
    assert live.texts[:3] == ("newline", "space", "!")
    assert live.oracle == ""
    assert (live.architecture.heads, live.architecture.head_width) == (1, 4)


def test_findings_with_a_live_view_go_to_json_and_back_and_older_ones_are_read():
    labels = [[["shift by 1", ""], ["", ""], ["", "uniform"]]] * 2
    shown = view(live_model([ensemble(), None, ensemble(seeds=(2, 3))], IDENTITY), labels)
    findings = Findings("a/b", "t", "s", "quick", PROVENANCE, views=(shown,))
    text = findings.to_json()
    again = Findings.from_json(text)
    assert again == findings
    assert again.to_json() == text
    assert again.views[0].labels[0][2] == ("", "uniform")
    data = json.loads(Findings("a/b", "t", "s", "quick", PROVENANCE, views=(view(),)).to_json())
    del data["views"][0]["labels"], data["views"][0]["live"]
    assert Findings.from_json(json.dumps(data)).views == (view(),)


@pytest.mark.parametrize(
    ("spec", "shown_task", "named"),
    [
        (SPEC, IDENTITY, None),
        (RecallSpec(width=32), IDENTITY, None),
        (RecallSpec(width=10, learned_positions=True), IDENTITY, None),
        (RecallSpec(width=10, scale_scores=False), IDENTITY, r"^model\.blocks\.0\.attn: does not scale its scores$"),
        (SPEC.replace(attention="uniform"), IDENTITY, None),
        (SPEC.replace(attention="linear"), IDENTITY, r"^model\.blocks\.0\.attn: has no softmax$"),
        (OneLayerSpec(width=9, embeddings="sphere"), IDENTITY, r"^model\.blocks\.0: runs its two layers in parallel"),
        (DecoderSpec(), IDENTITY, r"^model: has 5\d{6} parameters, more than 1048576"),
        (LSTMSpec(width=4), IDENTITY, "^model: a LSTM is not a transformer"),
        (FNNSpec(width=4), IDENTITY, "^model: a FNN is not a transformer"),
        (VectorSpec(width=8), task("retrieval/minimal"), r"^model\.embed: reads vectors"),
        (SPEC, task("retrieval/minimal"), "^kind: a 'decoder' model reads tokens"),
        (SPEC.replace(projection=False), IDENTITY, "^width: without projection"),
    ],
)
def test_says_which_models_a_page_can_run(spec, shown_task, named):
    problem = can_run(spec, shown_task)
    if named is None:
        assert problem is None
    else:
        with pytest.raises(SpecError, match=named):
            raise SpecError(*problem.split(": ", 1))
        assert "\n" not in problem


def test_models_of_too_many_parameters_or_layers_side_by_side_cannot_run():
    # Of width w: embedding and output map of 201 tokens, 9 positions, four maps of one head coordinate; 201 biases.
    assert [(415 * width + 201 <= MOST_PARAMETERS) for width in (2526, 2527)] == [True, False]
    wide = DecoderSpec(layers=1, heads=1, head_width=1, width=2526, layer_norm=False, feed_forward=False)
    assert can_run(wide, IDENTITY) is None
    assert "has 1048906 parameters" in (can_run(wide.replace(width=2527), IDENTITY) or "")
    module = SPEC.replace(layer_norm=False).build(IDENTITY.shape)
    module.blocks[0].parallel = True
    weights = {name: torch.zeros(1, *value.shape) for name, value in module.named_parameters()}
    with pytest.raises(SpecError, match=r"^model\.blocks\.0: runs its two layers in parallel; show"):
        live_model([Ensemble(module, weights, tuple(weights))], IDENTITY)


@pytest.mark.parametrize("change", [{"norm": "pre"}, {"positions": "rotary"}, {"activation": "gelu"}])
def test_blocks_of_different_forms_are_refused(change):
    whole = SPEC.replace(layers=2, width=4, head_width=4)
    mixed, other = whole.build(IDENTITY.shape), whole.replace(**change).build(IDENTITY.shape)
    mixed.blocks[1] = other.blocks[1]
    weights = {name: torch.zeros(1, *value.shape) for name, value in mixed.named_parameters()}
    with pytest.raises(SpecError, match=r"^model\.blocks: have different forms; show recorded attention only$"):
        live_model([Ensemble(mixed, weights, tuple(weights))], IDENTITY)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: live_model([None], IDENTITY), r"live\.ensembles: has no model"),
        (lambda: live_model([ensemble(), ensemble(seeds=(0,))], IDENTITY), r"live\.ensembles: differ"),
        (lambda: live_model([ensemble(), ensemble(SPEC.replace(layers=2))], IDENTITY), r"live\.ensembles: differ"),
        (lambda: live_model([ensemble(), ensemble(SPEC.replace(mask=False))], IDENTITY), r"live\.ensembles: differ"),
        (lambda: live_model([ensemble()], task("anchor/identity", length=8)), r"reads 9 of 201 tokens"),
        (lambda: live_model([Ensemble(nn.Linear(1, 1), {"w": torch.zeros(1, 1)}, ())], IDENTITY), "a Linear is not"),
        (lambda: view(live_model([ensemble()], IDENTITY)), r"view\.live: does not fit the members and steps"),
        (lambda: view(live_model([ensemble()] * 3, IDENTITY), layers=2), r"view\.live: does not have 2 layers of "),
        (lambda: view(labels=[[["", ""], ["", ""]]] * 2), r"view\.labels"),
        (lambda: view(labels=[[["", "", ""]] * 3] * 2), r"view\.labels"),
        (lambda: view(labels=[[["", ""]] * 3]), r"view\.labels"),
        (lambda: view(circuits=((ViewPath(2, 0, "", ((),)),), ())), r"view\.circuits\.0\.0: names head 2\.0 of 1 "),
        (lambda: view(circuits=((ViewPath(0, 0, "", ((), ())),), ())), r"0\.0\.places: has 2 examples; give 1"),
        (lambda: view(circuits=((ViewPath(0, 0, "", (((9, 0),),)),), ())), r"has \(9, 0\), outside 9 tokens"),
        (lambda: view(patterns=np.full((2, 3, 1, 1, 2, 9, 9), 0.5), causal=True), "has keys after their queries"),
        (lambda: replace(live_model([ensemble()], IDENTITY), data=((b"\0\0\0\0",),)), r"live\.data: has 4 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):  # a SpecError, or pydantic's ValidationError around one
        make()
