"""Emergence and mapping sequences: crossings, orders and moves by hand, checkpoints one by one."""

import pytest
import torch

from anchorlab import lens
from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.lens import PathAttention, crossing_order, distinct_counts, emergence, first_crossing, mapping_sequences
from anchorlab.runs import Store
from anchorlab.training import Members, Times
from tests.lens.hand_built import ANCHORS, INPUTS, blank, identity_solver, stacked
from tests.small_experiments import experiment

NAN = torch.nan
LAST, AFTER = torch.full((6, 1), 8), ANCHORS.unsqueeze(1) + 1
"""Positions of the identity sequences: the last, and the one after the anchor."""


def test_crossings_by_hand():
    steps = [0, 10, 20, 30]
    values = torch.tensor([[0.0, 0.5, 1.0, 1.0], [0.0, 0.2, 0.1, 0.4], [0.9, 0.0, 0.0, 0.0], [0.0, 0.8, 0.1, 0.9]])
    found = first_crossing(steps, values, 0.75)
    assert found[[0, 2, 3]].tolist() == pytest.approx([15.0, 0.0, 9.375]) and found[1].isnan()
    turned = first_crossing([30, 0, 10, 20], values.roll(1, dims=1), 0.75)
    assert turned.nan_to_num(-1).equal(found.nan_to_num(-1))  # in whatever order the steps were measured
    assert first_crossing(steps, 3 - values, 2.25, falling=True)[[0, 2, 3]].tolist() == pytest.approx([15, 0, 9.375])
    values = torch.tensor([[torch.inf, 0.1, 0.1], [NAN, NAN, 0.1]])
    assert first_crossing([0, 10, 20], values, 0.5, falling=True).tolist() == [10, 20]
    rising = torch.tensor([[0.0, 1.0, 1.0]])
    found = lens.Emergence((0, 4, 8), {"pair": rising, "loss": 1 - rising})
    assert found.crossings(0.25, ["pair"])["pair"].tolist() == [1.0]
    assert found.crossings(0.25, ["loss"], falling=True)["loss"].tolist() == [3.0]
    assert list(found.crossings(0.5)) == ["pair", "loss"]
    with pytest.raises(SpecError, match=r"'pairs'.*'pair'"):
        found.crossings(0.5, ["pairs"])


def test_orders_by_hand():
    """Four members: in order, together, the last one never, the first one never."""
    steps = {"a": [1.0, 2.0, 1.0, NAN], "b": [2.0, 2.0, 2.0, 2.0], "c": [3.0, 3.0, NAN, 3.0]}
    found = crossing_order({name: torch.tensor(values) for name, values in steps.items()})
    assert found.names == ("a", "b", "c")
    assert found.in_order.tolist() == [True, False, False, False]
    assert found.before.tolist() == [[0, 0.5, 0.75], [0.25, 0, 1], [0.25, 0, 0]]
    found = crossing_order({"a": torch.tensor([NAN]), "b": torch.tensor([NAN])})
    assert found.before.tolist() == [[0, 0], [0, 0]]
    assert found.in_order.tolist() == [False]


def test_path_attention_of_a_solver():
    """Layer 1, head 0 of the solver attends from behind the anchor to the token after it, from before it uniformly."""
    both = torch.cat([LAST, AFTER], dim=1)
    paths = {
        "broadcast": PathAttention(1, 0, LAST, AFTER),
        "elsewhere": PathAttention(1, 0, LAST, 0 * LAST),
        "shift": PathAttention(0, 0, both, both - 1),
    }
    found = lens.path_attention(INPUTS, paths)(stacked(identity_solver(), blank(layers=2)))
    assert found["broadcast"].tolist() == pytest.approx([1, 1 / 9], abs=1e-3)
    assert found["elsewhere"].tolist() == pytest.approx([0, 1 / 9], abs=1e-3)
    uniform = (1 / 9 + float((1 / (ANCHORS + 2)).mean())) / 2
    assert found["shift"].tolist() == pytest.approx([1, uniform], abs=1e-3)


@pytest.mark.untyped
def test_paths_that_do_not_fit_are_named():
    for head in (3, -1):
        with pytest.raises(SpecError, match=rf"^paths\.there\.head: there is no head {head}; choose from 0 to 2$"):
            lens.path_attention(INPUTS, {"there": PathAttention(1, head, LAST, AFTER)})(stacked(identity_solver()))
    for queries, keys, message in (
        (LAST, AFTER + 9, r"there: hold 1\d, a position outside 0\.\.8; keep queries and keys within a sequence$"),
        (
            LAST,
            AFTER[:5],
            r"there: has queries of shape \(6, 1\) and keys of shape \(5, 1\); give both as",
        ),
        (LAST[:2], AFTER[:2], r"there: has queries of shape \(2, 1\) and keys of shape \(2, 1\); give both"),
    ):
        with pytest.raises(SpecError, match=rf"^paths\.{message}"):
            lens.path_attention(INPUTS, {"there": PathAttention(1, 0, queries, keys)})(stacked(identity_solver()))


def test_what_a_path_lacks_is_left_out_of_its_mean():
    """Four of six sequences have the broadcast's query and key; read at the last position, -1 would change the mean."""
    lacking = torch.tensor([[True], [False], [False], [True], [False], [False]])
    paths = {
        "no key": PathAttention(1, 0, LAST, AFTER.where(~lacking, -1)),
        "no query": PathAttention(1, 0, LAST.where(~lacking, -1), AFTER),
        "two of a sequence": PathAttention(1, 0, LAST.expand(-1, 2), torch.cat([AFTER, AFTER.where(~lacking, -1)], 1)),
        "nothing": PathAttention(1, 0, LAST, torch.full_like(AFTER, -1)),
    }
    found = lens.path_attention(INPUTS, paths)(stacked(identity_solver(), blank(layers=2)))
    for name in ("no key", "no query", "two of a sequence"):
        assert found[name].tolist() == pytest.approx([1, 1 / 9], abs=1e-3)
    assert found["nothing"].isnan().all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    one = experiment(members=Members(seeds=(0, 1)), duration=6, checkpoints=Times(every=2))
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


def test_checkpoints_are_measured_in_turn_and_what_cannot_be_says_so(trained):
    told = []

    def norm(ensemble):
        return {"norm": ensemble.weights["embed.W_E"].norm(dim=(1, 2))}

    found = emergence(trained, norm, progress=lambda done, total: told.append((done, total)))
    assert found.steps == (0, 2, 4, 6)
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    for column, step in enumerate(found.steps):
        weights = trained.ensemble(step).weights["embed.W_E"].double()
        expected = weights.square().sum(dim=(1, 2)).sqrt()
        torch.testing.assert_close(found.values["norm"][:, column], expected, rtol=1e-6, atol=0)
    assert emergence(trained, norm, steps=[4]).steps == (4,)
    with pytest.raises(SpecError, match="steps"):
        emergence(trained, lambda ensemble: {}, steps=[])
    with pytest.raises(StoreError):
        emergence(trained, lambda ensemble: {}, steps=[3])
    names = iter(["a", "b"])
    with pytest.raises(SpecError, match=r"measure.*'b'.*step 2.*'a'"):
        emergence(trained, lambda ensemble: {next(names): torch.zeros(2)}, steps=[0, 2])
    assert emergence(trained, lambda ensemble: {"a": [1, 2]}, steps=[0, 2]).values["a"].tolist() == [[1, 1], [2, 2]]
    for returned, shape in ((torch.zeros(3), r"\(3,\)"), (0.5, r"\(\)"), (torch.zeros(2, 4), r"\(2, 4\)")):
        with pytest.raises(SpecError, match=rf"^measure\.a: has shape {shape}; return \[2\], one for each"):
            emergence(trained, lambda ensemble, returned=returned: {"a": returned})


SEQUENCES = torch.tensor(
    [
        [30, 3, 4, 50, 60],  # key 30 at the start
        [50, 60, 30, 3, 4],  # the same key, read late
        [60, 40, 3, 4, 50],
    ]
)
KEY_PLACES = torch.tensor([0, 2, 1])


def test_moves_by_hand():
    outputs = torch.tensor([[1, 26, 20, 20, 20], [1, 2, 7, 26, 20], [9, 9, 45, 38, 30]])
    expected = [[-4, -6, 0, 0], [-4, -6, 0, 0], [5, -7, -8, 0]]
    assert mapping_sequences(SEQUENCES, outputs, KEY_PLACES).tolist() == expected
    outputs = torch.tensor([[0, 26, 20, 20, 20], [0, 0, 0, 26, 20], [0, 0, 36, 30, 30]])
    later = outputs.clone()
    later[0, 4] = 21
    assert distinct_counts(mapping_sequences(SEQUENCES, outputs, KEY_PLACES)).tolist() == [3]
    assert mapping_sequences(SEQUENCES, later, KEY_PLACES)[0].tolist() == [-4, -6, 0, 1]
    assert distinct_counts(mapping_sequences(SEQUENCES, later, KEY_PLACES)).tolist() == [2, 1]
    assert distinct_counts(torch.zeros(0, 4, dtype=torch.int64)).tolist() == []
    with pytest.raises(SpecError, match=r"^key_positions: .*keep them within 0\.\.3"):
        mapping_sequences(SEQUENCES, SEQUENCES, torch.tensor([0, 4, 1]))


def test_moves_add_up_to_the_last_output():
    outputs = torch.randint(0, 201, (4, 3, 5), generator=torch.Generator().manual_seed(1))  # four members
    moves = mapping_sequences(SEQUENCES, outputs, KEY_PLACES)
    assert moves.shape == (4, 3, 4)
    assert torch.equal(moves.sum(dim=-1) + torch.tensor([30, 30, 40]), outputs[:, :, -1])
