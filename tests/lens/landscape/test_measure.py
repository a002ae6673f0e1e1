"""Landscapes of a hand-built network with a backup, and of random ones, by interventions one by one."""

import dataclasses
from importlib import import_module

import pytest
import torch
from torch.nn.functional import cross_entropy

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, Operand, effects, landscape, look
from anchorlab.models import DecoderSpec, LSTMSpec, RecallSpec
from anchorlab.rng import child_seed
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.hand_built import ANCHOR, BROUGHT, HEADS, TOKEN, VOCABULARY, carrying, drawn, identity_solver, shifting
from tests.lens.hand_built import PREDICTED as PREDICTION
from tests.lens.hand_built import where as holding

IDENTITY = task("anchor/identity", length=hand_built.LENGTH, anchors=(ANCHOR,), items=(4, 11), size=VOCABULARY)
MEASURE = import_module("anchorlab.lens.landscape.measure")
UNITS = ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
LOUD = 8.0


@pytest.fixture(params=["at once", "in parts"])
def parts(request, monkeypatch):
    """Several parts of rows, of subsets of a block and of streams, or all at once."""
    if request.param == "in parts":
        monkeypatch.setattr(MEASURE, "_AT_A_TIME", 7)
        monkeypatch.setattr(MEASURE, "_ROWS", 3)


def with_backup():
    """The identity solver with a backup: heads 0.0 and 0.2 both bring the token before; 1.0 finds the anchor by it."""
    module = hand_built.blank(layers=2)
    for head in (0, 2):
        shifting(module, 0, head, 1)
        carrying(module, 0, head, TOKEN, BROUGHT)
    shifting(module, 0, 1, 2)
    hand_built.matching(module, 1, 0, hand_built.everywhere(), holding(BROUGHT, ANCHOR))
    carrying(module, 1, 0, TOKEN, PREDICTION)
    shifting(module, 1, 2, 0)
    with torch.no_grad():
        module.unembed.W_U *= LOUD
    return module


def sequences(one, count):
    return one.sample(one.splits[-1], count, child_seed(0, "landscape"))


def test_a_planted_backup_shows():
    """Removing either head alone costs nothing, so that one by one only head 1.0 counts; the landscape finds both."""
    solver, batch = with_backup(), sequences(IDENTITY, 20)
    one_by_one = effects(
        solver, batch.inputs, batch.answers, Intervention(site="blocks.*.attn.hook_z", rule="zero"), over="head",
        metrics={"loss": lambda output, answers: cross_entropy(output.mT, answers, reduction="none")},
    ).change("loss")[0]  # fmt: skip
    assert (one_by_one.abs() > 1e-3).tolist() == [[False] * HEADS, [True, False, False]]
    found = landscape(hand_built.stacked(solver, solver), replace="zero", task=IDENTITY, sequences=20, progress=False)
    assert found.minimal(0.1)[1] == (("0.0", "1.0"), ("0.2", "1.0"))
    assert found.necessary(0.1)[1] == (("1.0",), ("0.0", "0.2"))
    assert found.redundancy(0.1).tolist() == [1, 1]
    assert found.backups(0.1)[1].nonzero().tolist() == [[0, 2], [2, 0]]
    none, alone, both = found.loss[1, [0, found.subset("1.0"), -1]].tolist()
    # the pair adds none - alone - ... only with 1.0: v = (none - alone) [1.0] + (alone - both) [1.0 and either]
    expected = [(alone - both) / 6, 0, (alone - both) / 6, (none - alone) + (alone - both) * 2 / 3, 0, 0]
    assert found.shapley[1].tolist() == pytest.approx(expected, abs=1e-4)
    assert found.interactions[1, 0, 2].item() == pytest.approx(-(alone - both) / 2, abs=1e-4)


FORMS = {
    "post": {},
    "pre": {"norm": "pre", "biases": True, "activation": "gelu", "tied": True},
    "rms": {"norm": "rms", "positions": "rotary", "activation": "swiglu"},
    "without residual": {"residual": False, "layer_norm": False},
    "some feed-forward": {"feed_forward": (True, False, True), "mask": (True, True, False)},
}


def cut(found, subset, seed=0):
    """The interventions that replace all units outside of a subset, one by one."""
    chosen = {"seed": seed} if found.replace == "resample" else {}
    for place, name in enumerate(found.units):
        if not subset >> place & 1:
            layer, part = name.split(".")
            site, where = f"blocks.{layer}.attn.hook_z", {"head": part}
            if part == "mlp":
                site, where = f"blocks.{layer}.hook_mlp_out", {}
            where = {axis: int(at) for axis, at in where.items()}
            yield Intervention(site=site, where=where, rule=found.replace, may_do_nothing=True, **chosen)


@pytest.mark.parametrize("replace", ["mean", "resample", "zero"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("parts")
def test_equals_interventions_one_by_one(form, replace):
    spec = DecoderSpec(layers=3, heads=2, width=12, head_width=6, hidden=9, **FORMS[form])
    model = drawn(initialise(spec, IDENTITY.shape, [3, 4], dtype=torch.float64))
    found = landscape(model, "all", replace, task=IDENTITY, sequences=11, progress=False)
    assert len(found.units) == (8 if form == "some feed-forward" else 9)
    batch = sequences(IDENTITY, 11)
    last = found.loss.shape[1] - 1
    some = [0, 6, 77, last - 66, last - 25, last - 8, last - 1, last]
    for subset in some:
        output = look(model, batch, interventions=[*cut(found, subset)], positions=batch.positions)["output"]
        expected = torch.stack([cross_entropy(one.flatten(0, 1), batch.targets.flatten()) for one in output])
        right = (output.argmax(-1) == batch.answers).double().mean((1, 2))
        assert torch.allclose(found.loss[:, subset], expected, atol=1e-12, rtol=0)
        assert torch.equal(found.accuracy[:, subset], right)
    distinct = 5 if form == "without residual" else 8  # without it, a replaced layer cuts all that is below
    assert len(found.loss[0, some].round(decimals=9).unique()) >= distinct
    assert torch.allclose(found.shapley.sum(1), found.effect, atol=1e-12, rtol=0)


def places_by_role(one, batch):
    """The positions of each role in each sequence, `[(name, rows of positions)]`: a position has its first role."""
    first = [{} for _ in range(len(batch))]
    for name, places in one.roles(batch).items():
        for row, own in zip(first, places.tolist(), strict=True):
            for place in own:
                row.setdefault(place, name.replace(" ", "-"))
    every = range(batch.inputs.shape[1])
    return [[row.get(place, "other") for place in every] for row in first]


ROLE_TASKS = (IDENTITY, task("classics/associative-recall", length=14, pairs=3))


@pytest.mark.parametrize("replace", ["mean", "resample", "zero"])
@pytest.mark.parametrize("one", ROLE_TASKS, ids=["one scored", "several scored"])
@pytest.mark.usefixtures("parts")
def test_units_by_role_equal_interventions_one_by_one(one, replace):
    """Each sequence is read alone, since the number of positions of a role differs between sequences."""
    spec = DecoderSpec(layers=2, heads=2, width=12, head_width=6, hidden=9)
    model, batch = drawn(initialise(spec, one.shape, [3, 4], dtype=torch.float64)), sequences(one, 4)
    units = ["0.0@asked", "0.0@other", f"0.1@{'key-1' if one is IDENTITY else 'value-1'}", "0.1@other", "1.1@asked"]
    found = landscape(model, units, replace, task=one, sequences=4, progress=False)
    rule = {"rule": replace} | ({"seed": 0} if replace == "resample" else {})
    sites = [f"blocks.{layer}.attn.hook_z" for layer in range(2)]
    removed = {
        site: look(model, batch, record=[site], interventions=[Intervention(site=site, **rule)])[site] for site in sites
    }
    names, losses = places_by_role(one, batch), []
    positions = batch.positions.expand(4, -1)
    for subset in range(32):
        total = 0
        for row in range(4):
            changes = []
            for name in {*units} - {*found.names(subset)}:
                layer, head, role = int(name[0]), int(name[2]), name[4:]
                places = [place for place, own in enumerate(names[row]) if own == role]
                values = removed[sites[layer]][:, row, places, head].unsqueeze(1)
                changes += [
                    Intervention(
                        site=sites[layer], where={"head": head}, at={"position": [places]}, rule="replace",
                        operand=Operand(values=values, axes=("member", "batch", "position", "head_width")),
                        may_do_nothing=True,
                    )
                ] * bool(places)  # fmt: skip
            output = look(model, batch.inputs[row : row + 1], interventions=changes)["output"][:, 0, positions[row]]
            total += torch.stack([cross_entropy(own, batch.targets[row]) for own in output])
        losses.append(total / 4)
    assert torch.allclose(found.loss, torch.stack(losses, dim=1), atol=1e-12, rtol=0)
    assert len(found.loss[0].round(decimals=9).unique()) == 32


@pytest.mark.parametrize("replace", ["mean", "resample", "zero"])
def test_the_roles_of_a_head_together_are_the_head(replace):
    spec = DecoderSpec(layers=2, heads=2, width=12, head_width=6, hidden=9)
    model = drawn(initialise(spec, IDENTITY.shape, [3, 4], dtype=torch.float64))
    options = {"replace": replace, "task": IDENTITY, "sequences": 12, "progress": False}
    heads, roles = landscape(model, "heads", **options), landscape(model, "roles", **options)
    mixed = landscape(model, ["0.0", "0.1@key-1", "1.0", "1.1"], **options)
    at = ("asked", "anchor-1", "key-1", "other")
    assert roles.units == (*(f"0.{head}@{role}" for head in (0, 1) for role in at), "1.0@asked", "1.1@asked")

    def by_role(kept):
        return roles.subset(*(unit for unit in roles.units if unit[:3] in kept or unit in kept))

    same = [by_role(heads.names(subset)) for subset in range(16)]
    assert torch.allclose(heads.loss, roles.loss[:, same], atol=1e-12, rtol=0)
    rest = {unit for unit in roles.units if unit[:3] == "0.1"} - {"0.1@key-1"}
    same = [by_role({*mixed.names(subset), *rest}) for subset in range(16)]
    assert torch.allclose(mixed.loss, roles.loss[:, same], atol=1e-12, rtol=0)
    # without a head in layer 1, those of layer 0 count at the asked position alone
    assert len(roles.loss[0].round(decimals=9).unique()) == 3 * 2**8 + 2**2


@pytest.mark.parametrize(
    ("name", "spec"),
    [("recall/noisy", RecallSpec(width=16, hidden=20)),
     ("classics/associative-recall", DecoderSpec(layers=2, heads=2, width=12, head_width=6))],
)  # fmt: skip
def test_several_scored_positions_with_weights(name, spec):
    """One merged head a layer, and scored positions that differ between sequences."""
    one = task(name)
    model = initialise(spec, one.shape, [0], dtype=torch.float64)
    found, batch = landscape(model, "all", task=one, sequences=9, progress=False), sequences(one, 9)
    weights = torch.ones(batch.targets.shape) if batch.weights is None else batch.weights
    for subset in (1, 2, len(found.loss[0]) - 1):
        output = look(model, batch, interventions=[*cut(found, subset)], positions=batch.positions)["output"][0]
        losses = cross_entropy(output.mT, batch.targets, reduction="none")
        expected = float((losses * weights).sum() / weights.sum())
        assert found.loss[0, subset].item() == pytest.approx(expected, abs=1e-7)


def test_named_units_leave_all_others_as_they_are():
    spec = DecoderSpec(layers=2, heads=3, width=12, head_width=4, hidden=9)
    model = drawn(initialise(spec, IDENTITY.shape, [3], dtype=torch.float64))
    every = landscape(model, "all", task=IDENTITY, sequences=10, progress=False)
    some = landscape(model, ["1.mlp", "0.1", "1.2"], task=IDENTITY, sequences=10, progress=False)
    assert some.units == ("0.1", "1.2", "1.mlp")
    kept = {*every.units} - {*some.units}
    for subset in range(8):
        same = every.loss[0, every.subset(*kept, *some.names(subset))]
        assert some.loss[0, subset].item() == pytest.approx(same.item(), abs=1e-12)


def test_progress_counts_subsets_times_sequences():
    told = []
    both = hand_built.stacked(with_backup(), identity_solver())
    landscape(both, task=IDENTITY, sequences=10, progress=lambda *at: told.append(at))
    assert told[-1] == (2 * 64 * 10, 2 * 64 * 10)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def diverged_beside(model):
    """Two members, of which the second has no numbers."""
    return model.with_weights({name: torch.cat([own, own * torch.nan]) for name, own in model.weights.items()})


def many(heads, layers=1):
    return initialise(DecoderSpec(layers=layers, heads=heads, width=4, head_width=1), IDENTITY.shape, [0])


@pytest.mark.untyped  # one replacement is no known one
@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (many(17), {},
         r"^units: 17 have too many subsets; 16 units can be enumerated; name 16 or fewer, as in units=\["),
        (many(2), {"units": ["0.0", "0.2"]}, r"^units.1: unknown unit '0.2'; did you mean '0.[01]'"),
        (many(2), {"units": ["0.1@askd"]}, r"^units.0: unknown unit '0.1@askd'; did you mean '0.1@asked'\?$"),
        (many(2), {"units": ["0.1@key-1", "0.1"]},
         r"^units.0: '0.1@key-1' is part of '0.1'; name the head or its roles$"),
        (many(4, layers=2), {"units": "roles"},
         r"^units: 20 have too many subsets; 16 units can be enumerated; name 16 or fewer, as in "
         r"units=\['0.0@asked', '0.0@anchor-1'\]; all others stay as they are$"),
        (many(2), {"units": "head"}, r"^units: unknown kind of units 'head'; did you mean 'heads'\?"),
        (many(2), {"units": []}, r"^units: are none; name some of 0.0, 0.1, 0.mlp$"),
        (many(2), {"split": "tests"}, r"^split: unknown split 'tests'; did you mean 'test'\?"),
        (many(2), {"sequences": 0}, r"^sequences: 0 are too few; give at least 1$"),
        (many(2), {"sequences": 1, "replace": "resample"}, r"^sequences: 1 are too few; give at least 2$"),
        (many(2), {"replace": "means"}, r"^replace: unknown replacement 'means'; did you mean 'mean'\?"),
        (diverged_beside(many(2)), {}, r"^model: member 1 has a loss that is not finite"),
        (many(2), {"task": None}, r"^task: is missing; give the task that the model was trained on$"),
        (many(2), {"task": "anchor/identity"}, r"^task: has .*; give the task that the model was trained on$"),
        (initialise(LSTMSpec(), IDENTITY.shape, [0]), {}, r"^model: is of type \w*LSTM\w*; give a transformer"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(model, arguments, message):
    with pytest.raises(SpecError, match=message) as raised:
        landscape(model, **{"task": IDENTITY, "progress": False, **arguments})
    assert "\n" not in str(raised.value)


def test_the_mean_loss_counts_weights_not_positions(monkeypatch):
    """Half of the scored positions have weight 0: the mean is over the others."""
    one = task("classics/associative-recall")
    drawn = one.sample

    def weighted(self, split, n, seed):
        batch = drawn(split, n, seed)
        weights = torch.zeros(batch.targets.shape)
        weights[::2] = 1.0
        return dataclasses.replace(batch, weights=weights)

    monkeypatch.setattr(type(one), "sample", weighted)
    model = initialise(DecoderSpec(layers=1, heads=2, width=12, head_width=6), one.shape, [0], dtype=torch.float64)
    found, batch = landscape(model, task=one, sequences=8, progress=False), sequences(one, 8)
    output = look(model, batch.inputs, positions=batch.positions)["output"][0]
    losses = cross_entropy(output.mT, batch.targets, reduction="none")
    assert found.loss[0, -1].item() == pytest.approx(losses[::2].mean().item(), abs=1e-7)
