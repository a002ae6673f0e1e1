"""What holds for every registered kind of model, whatever its switches, and for a user's own module."""

import inspect
import subprocess
import sys

import pytest
import torch
from torch.func import functional_call, grad, vmap

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models import Model, ModelSpec, gather_positions, parse_model
from anchorlab.models.model import predict
from tests.documents import ROOT
from tests.models.small_models import SMALL, drawn, inputs_of, shape_of
from tests.small_experiments import recurrent

POSITIONS = {
    "last": torch.tensor([6]),
    "some": torch.tensor([5, 0, 2, 2]),
    "own": torch.tensor([[1, 6], [0, 3], [4, 4], [6, 2]]),
}
AXES = {"batch", "position", "query", "key", "layer", "head", "width", "head_width", "hidden", "state", "output"}
ROW_AXES = {"batch": 4, "position": 7, "query": 7, "key": 7}


@pytest.fixture(params=SMALL, name="spec")
def _spec(request: pytest.FixtureRequest) -> ModelSpec:
    return SMALL[request.param]


def last_alone(spec: ModelSpec) -> bool:
    """Whether it makes one prediction for a whole sequence, at its last position."""
    return spec.build(shape_of(spec)).predicts_last_alone


def where(spec: ModelSpec) -> list[str]:
    """The positions at which it can be asked."""
    return ["last"] if last_alone(spec) else list(POSITIONS)


ASKED = [(kind, which) for kind, spec in SMALL.items() for which in where(spec)]
MAPPED = [(kind, which) for kind, spec in SMALL.items() for which in (None, *where(spec))]


def masked(spec: ModelSpec) -> bool:
    switch = getattr(spec, "mask", not last_alone(spec))
    return (switch if isinstance(switch, bool) else all(switch)) and not getattr(spec, "shift_values", 0)


def attention_of(spec: ModelSpec, site: str) -> str:
    """How the block of a site attends."""
    kind = getattr(spec, "attention", "softmax")
    return kind if isinstance(kind, str) else kind[int(site.split(".")[1])]


def test_every_kind_of_the_package_is_here():
    own = {kind for kind, each in ModelSpec.registry.items() if each.__module__.startswith("anchorlab.models.")}
    assert own == {spec.kind for spec in SMALL.values()}


def test_a_spec_is_read_back_and_its_model_takes_positions_and_tap_and_holds_parameters_alone(spec):
    assert ModelSpec.registry[spec.kind].parse(spec.model_dump(mode="json")) == spec
    model, before = spec.build(shape_of(spec)), torch.get_rng_state()
    model.initialise(torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    assert not list(model.named_buffers()) and set(model.state_dict()) == set(dict(model.named_parameters()))
    assert list(inspect.signature(model.forward).parameters)[:3] == ["inputs", "positions", "tap"]


def test_the_sites_are_those_visited_in_order_with_their_axes(spec):
    model, visited = drawn(spec), {}

    def note(site, value):
        assert site not in visited
        visited[site] = tuple(value.shape)
        return value

    model(inputs_of(spec), tap=note)
    assert list(visited) == list(model.sites)
    for name, site in model.sites.items():
        assert name == site.name
        assert set(site.axes) <= AXES
        assert len(site.axes) == len(visited[name])
        for axis, size in zip(site.axes, visited[name], strict=True):
            assert ROW_AXES.get(axis, size) == size


def test_a_tap_changes_what_follows_by_what_it_returns_alone(spec):
    model, inputs = drawn(spec), inputs_of(spec)
    plain = model(inputs)
    noise = torch.Generator().manual_seed(3)
    for changed in model.sites:

        def disturb(site, value, changed=changed):
            added = torch.randn(value.shape, generator=noise, dtype=value.dtype)
            return value + added if site == changed else value

        idle = changed.endswith(("hook_q", "hook_k")) and attention_of(spec, changed) == "uniform"  # the other is zero
        assert torch.allclose(model(inputs, tap=disturb), plain) == idle, changed
    model, inputs = drawn(spec), inputs_of(spec)
    tapped, plain = model(inputs, tap=lambda site, value: value), model(inputs)
    # unseen, a merged head takes tables and mixes before its value map: the same sums in another order
    torch.testing.assert_close(tapped, plain, rtol=0, atol=1e-12 if spec.kind.startswith("recall") else 0)


@pytest.mark.parametrize(("kind", "which"), ASKED)
def test_scored_positions_alone_are_those_of_the_full_computation(kind, which):
    spec = SMALL[kind]
    model, inputs, positions = drawn(spec), inputs_of(spec), POSITIONS[which]
    rows = positions.expand(4, -1) if positions.ndim == 1 else positions
    full = model(inputs)
    expected = torch.stack([full[sequence, rows[sequence]] for sequence in range(4)])
    assert full.shape == (4, 7, shape_of(spec).output_size)
    torch.testing.assert_close(model(inputs, positions), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gather_positions(full, positions), expected, rtol=0, atol=0)


def test_the_gradient_is_that_of_the_tapped_and_of_the_full_computation(spec):
    model, inputs, positions = drawn(spec), inputs_of(spec), POSITIONS["last" if last_alone(spec) else "own"]

    def gradient(scored, **tap):
        def loss(weights):
            output = functional_call(model, weights, (inputs, scored), tap)
            return (gather_positions(output, positions) if scored is None else output).square().sum()

        return grad(loss)(dict(model.named_parameters()))

    tapped, full = gradient(positions, tap=lambda site, value: value), gradient(None)
    for name, value in gradient(positions).items():
        torch.testing.assert_close(value, tapped[name], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(value, full[name], rtol=1e-10, atol=1e-10)


def test_only_a_model_without_a_mask_looks_ahead(spec):
    model, inputs = drawn(spec), inputs_of(spec)
    later = inputs.clone()
    later[:, 4] = (later[:, 4] + 1) % 11 if inputs.dtype == torch.int64 else later[:, 4] + 1
    before, after = model(inputs), model(later)
    assert torch.equal(before[:, :4], after[:, :4]) == masked(spec)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_attention_rows_are_distributions_over_what_may_be_seen_unless_they_are_linear(spec):
    patterns = {}
    drawn(spec)(inputs_of(spec), tap=lambda site, x: patterns.setdefault(site, x) if site.endswith("pattern") else x)
    assert patterns or not any(site.endswith("pattern") for site in drawn(spec).sites)
    switch = getattr(spec, "mask", True)
    causal = [switch] * len(patterns) if isinstance(switch, bool) else switch
    for (site, pattern), alone in zip(patterns.items(), causal, strict=True):
        if attention_of(spec, site) != "linear":
            torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(pattern.shape[:-1], dtype=torch.float64))
        assert pattern.triu(1).any() != alone


@pytest.mark.parametrize(("kind", "which"), MAPPED)
def test_members_mapped_together_are_members_alone(kind, which):
    spec = SMALL[kind]
    members = [drawn(spec, seed) for seed in range(3)]
    inputs = torch.stack([inputs_of(spec, seed=seed) for seed in range(3)])
    positions = None if which is None else POSITIONS[which]
    weights = {
        name: torch.stack([dict(m.named_parameters())[name] for m in members]) for name in members[0].state_dict()
    }

    def loss(weights, inputs):
        return functional_call(members[0], weights, (inputs, positions)).square().mean()

    together = vmap(lambda w, x: functional_call(members[0], w, (x, positions)))(weights, inputs)
    slopes = vmap(grad(loss))(weights, inputs)
    for index, member in enumerate(members):
        own = {name: value[index] for name, value in weights.items()}
        torch.testing.assert_close(together[index], member(inputs[index], positions), rtol=0, atol=1e-12)
        for name, slope in grad(loss)(own, inputs[index]).items():
            torch.testing.assert_close(slopes[name][index], slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, spec in SMALL.items() if last_alone(spec)])
def test_one_prediction_for_a_whole_sequence_stands_at_all_its_positions_and_is_asked_for_once(name):
    spec = SMALL[name]
    model, inputs = drawn(spec), inputs_of(spec)
    full = model(inputs)
    assert torch.equal(full, full[:, -1:].expand(-1, 7, -1))
    for positions in (POSITIONS["some"], POSITIONS["own"]):
        with pytest.raises(SpecError, match=r"^positions: .* makes one prediction for a whole sequence"):
            model(inputs, positions)
    with pytest.raises(SpecError, match=r"^inputs: .* made for 7 positions cannot read 5"):
        model(inputs[:, :5])


@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_members_may_have_their_own_positions_and_share_inputs(kind):
    spec = SMALL[kind]
    model, inputs = drawn(spec), inputs_of(spec)
    positions = torch.tensor([[6], [2]])
    mapped = vmap(lambda where: model(inputs, where))(positions)
    for index in range(2):
        torch.testing.assert_close(mapped[index], model(inputs)[:, positions[index]], rtol=0, atol=1e-12)


def test_weights_come_from_the_generator_and_from_nowhere_else(spec):
    def weights(seed, noise):
        torch.manual_seed(noise)
        model = spec.build(shape_of(spec))
        assert isinstance(model, Model)
        model.initialise(torch.Generator().manual_seed(seed))
        return model.state_dict()

    first, again, other = weights(0, 1), weights(0, 2), weights(1, 1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    # Mamba's rates are the same in every model
    drawn_weights = [name for name, value in first.items() if value.unique().numel() > 1 and "A_log" not in name]
    assert drawn_weights
    assert not any(torch.equal(first[name], other[name]) for name in drawn_weights)
    assert all(value.isfinite().all() for value in first.values())


def test_mixed_precision_is_near_full_precision(spec):
    model, inputs = drawn(spec).float(), inputs_of(spec)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    exact = model(inputs, POSITIONS["last"])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(inputs, POSITIONS["last"])
    torch.testing.assert_close(mixed.float(), exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))


@pytest.mark.parametrize("kind", [kind for kind, spec in SMALL.items() if not last_alone(spec)])
def test_a_shorter_sequence_is_the_beginning_of_a_longer_one_unless_a_model_looks_ahead(kind):
    model, inputs = drawn(SMALL[kind]), inputs_of(SMALL[kind])
    shorter, longer = model(inputs[:, :5]), model(inputs)[:, :5]
    assert torch.allclose(shorter, longer, rtol=0, atol=1e-12) == masked(SMALL[kind])


WITHOUT_A_BATCH = """
from tests.models.small_models import SMALL, drawn, inputs_of
for spec in SMALL.values():
    try:
        drawn(spec)(inputs_of(spec)[0])
    except ValueError as error:
        print(error)
"""


def test_a_sequence_without_a_batch_is_named():
    """In a process of its own, since the tests check shapes before the models do."""
    line = [sys.executable, "-c", WITHOUT_A_BATCH]
    said = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT)
    one = "inputs: are one sequence without a batch axis; give a batch of one, inputs[None]"
    assert said.stdout.splitlines() == [one] * len(SMALL)


def test_there_may_be_no_sequences_and_no_positions(spec):
    model, inputs = drawn(spec), inputs_of(spec)
    every, outputs = model(inputs).shape[1:]
    assert model(inputs[:0]).shape == (0, every, outputs)
    if not last_alone(spec):
        assert model(inputs, torch.tensor([], dtype=torch.int64)).shape == (len(inputs), 0, outputs)


def test_hooks_within_hooks_and_a_tap_are_all_called_the_outer_first(spec=SMALL["decoder"]):
    model, site, seen = drawn(spec), "blocks.1.hook_resid_pre", []
    with model.hooks({site: torch.zeros_like}), model.hooks({site: seen.append, "hook_embed": seen.append}):
        model(inputs_of(spec), tap=lambda name, value: value + 1)
    assert len(seen) == 2 and seen[0].abs().max() > 0  # of the stream, which the outer hook has set to zero:
    assert not seen[1].any()


# A user's own module needs nothing of ours.
OWN_SHAPE = TaskShape(inputs="tokens", length=5, input_size=7, output_size=7)
OWN_INPUTS = torch.arange(15).view(3, 5) % 7


def test_a_plain_module_is_built_from_its_spec_and_its_predictions_are_gathered():
    spec = parse_model({"kind": "test-lstm", "width": 6})
    assert spec == recurrent(width=6)
    assert spec.build(OWN_SHAPE).embed.weight.shape == (7, 6)
    module = recurrent().build(OWN_SHAPE)
    full = module(OWN_INPUTS)
    assert torch.equal(predict(module, OWN_INPUTS, torch.tensor([4, 0])), full[:, [4, 0]])
    own = torch.tensor([[1], [2], [3]])
    assert torch.equal(predict(module, OWN_INPUTS, own)[:, 0], full[torch.arange(3), own[:, 0]])
