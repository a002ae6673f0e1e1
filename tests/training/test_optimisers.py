"""Stacked optimisers against torch.optim and clip_grad_norm_, member by member."""

import pytest
import torch

from anchorlab.training import SGD, Adam, AdamW, Members, Recipe
from anchorlab.training.optimisers import StackedOptimiser

SHAPES = {"matrix": (5, 7), "vector": (3,), "scalar": (), "cube": (2, 3, 4)}
RATES, DECAYS, CLIPS = (1e-2, 3e-1, 1e-3), (0.0, 0.3, 0.05), (0.01, 1e3, 2.0)
STEPS = 12
SPECS = {
    "adamw": AdamW(betas=(0.8, 0.95), epsilon=1e-6),
    "adam": Adam(),
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
}


def drawn(seed, dtype, transposed=False):
    """Stacked weights and gradients of every step, on very different scales so that clipping sometimes acts."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape):
        value = torch.randn(3, *shape, generator=generator, dtype=torch.float64).to(dtype)
        if transposed and len(shape) == 2:  # the same numbers, lying in memory the other way round
            value = value.mT.contiguous().mT
        return value

    weights = {name: draw(shape) for name, shape in SHAPES.items()}
    gradients = [{name: draw(shape) * 4.0 ** (step % 5 - 2) for name, shape in SHAPES.items()} for step in range(STEPS)]
    return {name: value.contiguous() for name, value in weights.items()}, gradients


def by_torch(spec, weights, gradients, clips, factors, member):
    own = [value[member].clone().requires_grad_() for value in weights.values()]
    rate, decay = RATES[member], DECAYS[member]
    if isinstance(spec, SGD):
        optimiser = torch.optim.SGD(own, lr=rate, momentum=spec.momentum, weight_decay=decay)
    else:
        kind = torch.optim.Adam if isinstance(spec, Adam) else torch.optim.AdamW
        optimiser = kind(own, lr=rate, betas=spec.betas, eps=spec.epsilon, weight_decay=decay, foreach=False)
    for step, factor in enumerate(factors):
        optimiser.param_groups[0]["lr"] = rate * factor
        for weight, gradient in zip(own, gradients[step].values(), strict=True):
            weight.grad = gradient[member].clone()
        if clips is not None:
            torch.nn.utils.clip_grad_norm_(own, clips[member])
        optimiser.step()
    return [value.detach() for value in own]


def by_ours(spec, weights, gradients, clips, factors, form):
    members = Members(seeds=(0, 1, 2), learning_rate=RATES, weight_decay=DECAYS, clip=clips)
    stacked = {name: value.clone() for name, value in weights.items()}
    optimiser = StackedOptimiser(Recipe(optimiser=spec), members, stacked)
    dtype = stacked["matrix"].dtype
    for step, factor in enumerate(factors):
        if form == "all":
            every = torch.full((3,), factor, dtype=dtype)
            optimiser.update_all(gradients[step], every, torch.tensor(step, dtype=torch.float64))
        else:
            for member in range(3):
                own = [gradient[member].clone() for gradient in gradients[step].values()]
                optimiser.update_member(member, own, factor, step)
    return stacked


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("clips", [None, CLIPS], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("form", ["member", "all"])
@pytest.mark.parametrize("name", SPECS)
def test_as_torch_does(name, form, clips, transposed):
    weights, gradients = drawn(0, torch.float64, transposed)
    factors = [0.1 + 0.1 * step for step in range(STEPS)]
    ours = by_ours(SPECS[name], weights, gradients, clips, factors, form)
    for member in range(3):
        theirs = by_torch(SPECS[name], weights, gradients, clips, factors, member)
        for mine, other in zip(ours.values(), theirs, strict=True):
            torch.testing.assert_close(mine[member], other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["member", "all"])
@pytest.mark.parametrize("name", SPECS)
def test_in_float32_within_rounding(name, form):
    weights, gradients = drawn(1, torch.float32, transposed=True)
    ours = by_ours(SPECS[name], weights, gradients, CLIPS, [1.0] * STEPS, form)
    for member in range(3):
        theirs = by_torch(SPECS[name], weights, gradients, CLIPS, [1.0] * STEPS, member)
        for mine, other in zip(ours.values(), theirs, strict=True):
            torch.testing.assert_close(mine[member], other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SPECS)
def test_resting_members_keep_their_weights(name):
    weights, gradients = drawn(2, torch.float32)
    members = Members(seeds=(0, 1, 2))
    stacked = {key: value.clone() for key, value in weights.items()}
    optimiser = StackedOptimiser(Recipe(optimiser=SPECS[name].replace(weight_decay=0.1), clip=1.0), members, stacked)
    for step in range(3):
        optimiser.update_all(gradients[step], torch.tensor([1.0, 0.0, 0.5]), torch.tensor(step, dtype=torch.float64))
        optimiser.update_member(2, [gradient[2].clone() for gradient in gradients[step].values()], 1.0, step)
    for key, value in stacked.items():
        assert torch.equal(value[1], weights[key][1])
        assert not torch.equal(value[0], weights[key][0])
        assert not torch.equal(value[2], weights[key][2])


def test_the_state_is_stacked_and_named_by_weight():
    weights, _ = drawn(0, torch.float32)
    state = StackedOptimiser(Recipe(), Members(seeds=(0, 1, 2)), weights).state
    assert set(state) == {f"{slot}.{name}" for slot in ("first", "second") for name in SHAPES}
    assert all(value.shape == (3, *SHAPES[name.partition(".")[2]]) for name, value in state.items())
    assert StackedOptimiser(Recipe(optimiser=SGD()), Members(seeds=(0, 1, 2)), weights).state == {}
