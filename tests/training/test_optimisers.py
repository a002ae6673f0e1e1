"""The optimisers (member by member, by rows, and flat) against torch.optim and clip_grad_norm_."""

import pytest
import torch

from anchorlab.training import SGD, Adam, AdamW, Members, Recipe
from anchorlab.training.flat_optimiser import FlatOptimiser, FlatWeights, RowOptimiser
from anchorlab.training.optimisers import StackedOptimiser
from tests.training.kernels import Kernels

SHAPES = {"matrix": (5, 7), "vector": (3,), "scalar": (), "cube": (2, 3, 4)}
RATES, DECAYS, CLIPS = (1e-2, 3e-1, 1e-3), (0.0, 0.3, 0.05), (0.01, 1e3, 2.0)
STEPS = 12
FLAT = {"rows": RowOptimiser, "flat": FlatOptimiser}
FORMS = ["member", *FLAT]
SPECS = {"adamw": AdamW(betas=(0.8, 0.95), epsilon=1e-6), "adam": Adam(), "sgd": SGD(), "momentum": SGD(momentum=0.9)}


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


def by_torch(spec, weights, gradients, clips, factors, member, undecayed=()):
    named = {name: value[member].clone().requires_grad_() for name, value in weights.items()}
    own, rate, decay = list(named.values()), RATES[member], DECAYS[member]
    groups = [
        {"params": [value for name, value in named.items() if name not in undecayed], "weight_decay": decay},
        {"params": [value for name, value in named.items() if name in undecayed], "weight_decay": 0.0},
    ]
    if isinstance(spec, SGD):
        optimiser = torch.optim.SGD(groups, lr=rate, momentum=spec.momentum)
    else:
        kind = torch.optim.Adam if isinstance(spec, Adam) else torch.optim.AdamW
        optimiser = kind(groups, lr=rate, betas=spec.betas, eps=spec.epsilon, foreach=False)
    for step, factor in enumerate(factors):
        for group in optimiser.param_groups:
            group["lr"] = rate * factor
        for weight, gradient in zip(own, gradients[step].values(), strict=True):
            weight.grad = gradient[member].clone()
        if clips is not None:
            torch.nn.utils.clip_grad_norm_(own, clips[member])
        optimiser.step()
    return [value.detach() for value in own]


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def by_ours(spec, weights, gradients, clips, factors, form, undecayed=()):
    members = Members(seeds=(0, 1, 2), learning_rate=RATES, weight_decay=DECAYS, clip=clips)
    if form in FLAT:
        flat = FlatWeights(weights)
        optimiser = FLAT[form](Recipe(optimiser=spec), members, flat, undecayed)
        for step, factor in enumerate(factors):
            optimiser.update(gradients[step], number(factor), number(step), torch.ones(3, dtype=torch.bool))
        return flat.views
    stacked = {name: value.clone() for name, value in weights.items()}
    decays = {name: value.new_tensor(name not in undecayed) for name, value in stacked.items()} if undecayed else None
    optimiser = StackedOptimiser(Recipe(optimiser=spec), members, stacked, decays)
    for step, factor in enumerate(factors):
        for member in range(3):
            own = [gradient[member].clone() for gradient in gradients[step].values()]
            optimiser.update_member(member, own, factor, step)
    return stacked


@pytest.mark.parametrize(
    ("transposed", "undecayed"),
    [(False, ()), (True, ()), (False, ("vector", "cube"))],
    ids=["", "transposed", "some without decay"],
)
@pytest.mark.parametrize("clips", [None, CLIPS], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SPECS)
def test_as_torch_does(name, form, clips, transposed, undecayed):
    weights, gradients = drawn(0, torch.float64, transposed)
    factors = [0.1 * step for step in range(STEPS)]  # a warm-up from zero: its first step still counts the gradient
    ours = by_ours(SPECS[name], weights, gradients, clips, factors, form, undecayed)
    for member in range(3):
        theirs = by_torch(SPECS[name], weights, gradients, clips, factors, member, undecayed)
        for mine, other in zip(ours.values(), theirs, strict=True):
            torch.testing.assert_close(mine[member], other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SPECS)
def test_in_float32_within_rounding(name, form):
    weights, gradients = drawn(1, torch.float32, transposed=True)
    ours = by_ours(SPECS[name], weights, gradients, CLIPS, [1.0] * STEPS, form)
    for member in range(3):
        theirs = by_torch(SPECS[name], weights, gradients, CLIPS, [1.0] * STEPS, member)
        for mine, other in zip(ours.values(), theirs, strict=True):
            torch.testing.assert_close(mine[member], other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spoiled", [None, torch.nan, torch.inf])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("form", FLAT)
def test_members_that_rest_keep_weights_and_state_whatever_their_gradients_are(form, name, clip, spoiled):
    weights, gradients = drawn(2, torch.float32)
    flat = FlatWeights(weights)
    recipe = Recipe(optimiser=SPECS[name].replace(weight_decay=0.1), clip=clip)
    optimiser = FLAT[form](recipe, Members(seeds=(0, 1, 2)), flat)
    optimiser.update(gradients[0], number(1.0), number(0), torch.tensor([True, True, True]))
    kept = {key: value[1].clone() for key, value in (*flat.views.items(), *optimiser.state.items())}
    for step in range(1, 4):
        if spoiled is not None:
            gradients[step]["matrix"][1, 0, 0] = spoiled
        optimiser.update(gradients[step], number(1.0), number(step), torch.tensor([True, False, True]))
    for key, value in (*flat.views.items(), *optimiser.state.items()):
        assert torch.equal(value[1], kept[key])
        assert value.isfinite().all()
    for member in (0, 2):
        assert not torch.equal(flat.views["cube"][member], weights["cube"][member])


@pytest.mark.parametrize("form", FLAT)
@pytest.mark.parametrize("name", ["adamw", "adam", "momentum"])
def test_members_that_rest_keep_their_weights_though_their_state_is_not_finite(name, form):
    weights, gradients = drawn(2, torch.float32)
    flat = FlatWeights(weights)
    optimiser = FLAT[form](Recipe(optimiser=SPECS[name]), Members(seeds=(0, 1, 2)), flat)
    for value in optimiser.state.values():
        value[1] = torch.nan
    optimiser.update(gradients[0], number(1.0), number(0), torch.tensor([True, False, True]))
    for key, value in flat.views.items():
        assert torch.equal(value[1], weights[key][1])


@pytest.mark.parametrize(("name", "most"), [("adamw", 30), ("adam", 29), ("sgd", 13), ("momentum", 16)])
def test_flat_kernels_do_not_depend_on_the_number_of_weights(name, most):
    counts = []
    for copies in (1, 10):
        weights = {f"{key} {copy}": torch.zeros(3, *shape) for key, shape in SHAPES.items() for copy in range(copies)}
        recipe = Recipe(optimiser=SPECS[name].replace(weight_decay=0.1), clip=1.0)
        optimiser = FlatOptimiser(recipe, Members(seeds=(0, 1, 2)), FlatWeights(weights))
        with Kernels() as kernels:
            optimiser.update(weights, number(1.0), number(0), torch.ones(3, dtype=torch.bool))
        counts.append(kernels.count)
    assert counts[0] == counts[1] <= most


@pytest.mark.parametrize("form", FLAT)
def test_flat_weights_lie_apart_and_padding_stays_zero(form):
    weights, gradients = drawn(4, torch.float32)
    flat = FlatWeights(weights)
    assert all(torch.equal(flat.views[key], value) for key, value in weights.items())
    starts = [view.data_ptr() - flat.values.data_ptr() for view in flat.views.values()]
    assert starts == sorted(set(starts))
    assert all(start % 128 == 0 for start in starts)
    assert (flat.values.stride(0) * 4) % 128 == 0
    assert torch.equal(flat.gather(flat.views), flat.values)
    optimiser = FLAT[form](Recipe(clip=1.0), Members(seeds=(0, 1, 2)), flat)
    optimiser.update(gradients[0], number(1.0), number(0), torch.ones(3, dtype=torch.bool))
    assert flat.values.count_nonzero() <= sum(value.numel() for value in weights.values())
    flat.values.fill_(7.0)
    assert all((view == 7).all() for view in flat.views.values())


def test_the_state_is_stacked_and_named_by_weight():
    weights, _ = drawn(0, torch.float32)
    state = StackedOptimiser(Recipe(), Members(seeds=(0, 1, 2)), weights).state
    assert set(state) == {f"{slot}.{name}" for slot in ("first", "second") for name in SHAPES}
    assert all(value.shape == (3, *SHAPES[name.partition(".")[2]]) for name, value in state.items())
    assert StackedOptimiser(Recipe(optimiser=SGD()), Members(seeds=(0, 1, 2)), weights).state == {}
    for form in FLAT.values():
        flat = form(Recipe(), Members(seeds=(0, 1, 2)), FlatWeights(weights)).state
        assert [(name, value.shape) for name, value in flat.items()] == [(name, v.shape) for name, v in state.items()]
