"""A random basis: the same outputs in exact arithmetic, and weights that show nothing of the blocks."""

import pytest
import torch

from anchorlab.models.model import predict
from anchorlab.tasks import task
from anchorlab.theory.compiled import assemble, compiled
from anchorlab.theory.compiled.copying import next_token
from anchorlab.theory.compiled.rotated import _Draw, rotated
from anchorlab.theory.compiled.sums import addition
from anchorlab.theory.compiled.variants import cancelling


@pytest.mark.parametrize("program", [next_token(task("anchor/identity")), addition(task("anchor/composite"))])
def test_the_outputs_are_equal_in_double_precision(program):
    program = cancelling(program)
    spec, weights = assemble(program, 25.0, 15.0)
    wide, turned = rotated(spec, weights, torch.Generator().manual_seed(1))
    batch = program.task.sample("train", 30, seed=0)
    outputs = []
    for each, values in ((spec, weights), (wide, turned)):
        module = each.build(program.task.shape).double()
        module.load_state_dict(values)
        outputs.append(predict(module, batch.inputs, batch.positions))
    assert torch.allclose(outputs[0], outputs[1], atol=1e-9, rtol=0)
    assert wide.width == -(-spec.width * 5 // 4)


def test_no_weight_shows_what_it_reads_or_writes():
    """Weights of the plain model are nearly all 0. Here none is."""
    made, turned = (
        compiled("two-distances", "distractor"),
        compiled("two-distances", "distractor", rotated=True, seed=1),
    )
    for name, value in turned.ensemble.weights.items():
        if name == "unembed.b_U":
            continue
        # tokens that are neither items nor anchors have no embedding, and tokens that are no answer no logit
        outer = {"embed.W_E": 1, "unembed.W_U": 0}.get(name)
        used = (
            value[0]
            if outer is None
            else value[0][:, value[0].abs().sum(0) > 0]
            if outer == 0
            else value[0][value[0].abs().sum(1) > 0]
        )
        assert (used == 0).float().mean() < 1e-4, name
        before = made.ensemble.weights[name][0]
        assert (before == 0).float().mean() > 0.8, name


def test_an_idle_head_has_the_norms_of_a_working_one():
    made = compiled("two-distances", "distractor", rotated=True, seed=1)
    assert made.truth.units[1].role.startswith("idle")
    width = made.ensemble.spec.head_width
    for role in "QKVO":
        weight = made.ensemble.weights[f"blocks.0.attn.W_{role}"][0]
        working, idle = (part.norm().item() for part in weight.split(width, dim=0 if role == "O" else 1))
        assert idle == pytest.approx(working, rel=1e-5), role


def test_seeds_give_other_bases():
    one, same, other = (compiled("identity", rotated=True, seed=seed).ensemble.weights for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.allclose(one["embed.W_E"], other["embed.W_E"])


def test_either_sign_of_a_basis_is_as_likely():
    """The first column of the bare factor of a QR decomposition always begins with a negative number."""
    draw = _Draw(torch.Generator().manual_seed(0), 1)
    positive = [float(draw.orthogonal(3)[0, 0]) > 0 for _ in range(400)]
    assert 0.4 < sum(positive) / 400 < 0.6  # four standard errors


def test_noise_is_as_large_as_what_it_hides():
    spec, weights = assemble(next_token(task("anchor/identity")), 25.0, 15.0)
    _, turned = rotated(spec, weights, torch.Generator().manual_seed(1))
    for name in ("embed.W_E", "pos_embed.W_pos"):
        assert turned[name].norm() == pytest.approx(2**0.5 * weights[name].norm().item())
