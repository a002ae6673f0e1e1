"""Rankings of heads by detectors and by circuits made by hand, and the landscape of heads alone."""

import polars
import pytest
import torch

from anchorlab.lens import Circuit, landscape
from anchorlab.lens.circuits import AttentionRule, CircuitPath, Explanation
from anchorlab.models import DecoderSpec
from anchorlab.papers.truth.methods.heads import circuit_paths, cut_losses, detected, of_heads, strongest
from anchorlab.tasks import task
from anchorlab.theory.compiled import compiled
from anchorlab.training.ensemble import initialise


def test_the_landscape_of_heads_keeps_feed_forward_layers():
    of = task("anchor/identity")
    ensemble = initialise(DecoderSpec(layers=2, heads=2, width=16, head_width=8), of.shape, range(2))
    for replace in ("mean", "resample"):
        every, heads = (
            landscape(ensemble, units, replace, task=of, sequences=20, progress=False) for units in ("all", "heads")
        )
        found = of_heads(every)
        assert (found.units, found.replace) == (heads.units, replace)
        torch.testing.assert_close(found.loss, heads.loss, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.accuracy, heads.accuracy, rtol=0, atol=1e-6)
        assert heads.loss.std(dim=1).min() > 1e-4


def test_a_head_has_its_strongest_detector():
    """By how much of the way from chance to 1: 0.6 of 0.2 is half; uniform attention does not count, nor less."""
    rows = [
        (0, 0, 0, "shift", 0.6, 0.2),
        (0, 0, 0, "first_token", 0.5, 0.1),
        (0, 0, 1, "shift", 0.1, 0.2),
        (0, 0, 1, "uniform", 1.0, 0.2),
        (0, 1, 0, "broadcast", 1.0, 0.3),
        (1, 0, 0, "shift", 0.2, 0.2),
        (1, 0, 1, "shift", 0.8, 0.2),
        (1, 1, 0, "broadcast", 0.37, 0.3),
    ]
    names = ("member", "layer", "head", "detector", "value", "chance")
    found = strongest(polars.DataFrame(rows, schema=names, orient="row"))
    assert found.units == ("0.0", "0.1", "1.0") and found.passes == (1, 0)
    assert found.values[0].tolist() == pytest.approx([0.5, 0.0, 1.0])
    assert found.values[1].tolist() == pytest.approx([0.0, 0.75, 0.1])


def test_a_cut_of_a_heads_best_path():
    """Cuts of head 0.0 raise the live loss by 0.5 and 2; head 0.1 has no path, and no rule explains head 1.0."""
    rules = [AttentionRule("asked", at) for at in (0, 1)]
    cuts = {"attention": 1.0, "mapped_cut_loss": 9.0}
    circuit = Circuit(
        explanations={(0, 0): Explanation("uniform", tuple(rules)), (0, 1): Explanation("uniform"), (1, 0): None},
        paths=tuple(
            CircuitPath(0, 0, rule, cut_loss=loss, **cuts) for rule, loss in zip(rules, (1.5, 3.0), strict=True)
        ),
        roles=("key", "asked"),
        threshold=1.2,
        model_loss=0.5,
        loss=0.75,
        live_loss=1.0,
        empty_loss=6.5,
        rest_loss=6.0,
        causal=True,
    )
    assert cut_losses(circuit).tolist() == [2.0, 0.0, 6.0]


def test_members_keep_their_own_circuits_and_detectors():
    """Two members that differ in which head of layer 0 is idle."""
    of = task("anchor/identity")
    made = compiled("identity", "distractor", rotated=True, sharpness=8).ensemble
    turned = dict(made.weights)
    for role in "QKVO":
        name = f"blocks.0.attn.W_{role}"
        axis = 1 if role == "O" else 2
        turned[name] = turned[name].roll(turned[name].shape[axis] // 2, dims=axis)
    both = made.with_weights({name: torch.cat([value, turned[name]]) for name, value in made.weights.items()})
    paths = circuit_paths(both, of, "test", 24)
    assert paths.units == ("0.0", "0.1", "1.0", "1.1")
    assert paths.values[0, 0] > 1 and paths.values[0, 1] == 0 and paths.values[1, 0] == 0 and paths.values[1, 1] > 1
    seen = detected(both, of.sample("test", 24, seed=0)).values
    assert seen[0, 0] > 0.9 and seen[0, 1] < 0.5 and seen[1, 0] < 0.5 and seen[1, 1] > 0.9
