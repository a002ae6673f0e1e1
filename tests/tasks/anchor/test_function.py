"""Anchor functions: their law, separation, errors - against counts and answers worked out outside the package."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction, ModularResidue, Operation, Placement, Vocabulary, parse_task, task

from ..examples import COMPOSITE, MULTI_ANCHOR, TWO_DISTANCES

IDENTITY = task("anchor/identity")
TRAIN_KEYS = {p: [x for x in range(20, 101) if (x - p) % 8 != 0] for p in range(8)}
TEST_KEYS = {p: [x for x in range(20, 101) if (x - p) % 8 == 0] for p in range(8)}


@pytest.mark.parametrize(("split", "allowed"), [("train", TRAIN_KEYS), ("test", TEST_KEYS)])
def test_identity_draws_exactly_the_allowed_keys_uniformly(split: str, allowed: dict[int, list[int]]) -> None:
    n = 400_000
    batch = IDENTITY.sample(split, n, seed=1)
    tokens = batch.inputs.numpy()
    rows, position = np.nonzero(tokens == 3)
    assert rows.tolist() == list(range(n))  # the anchor exactly once
    key = tokens[np.arange(n), position + 1]
    assert np.array_equal(batch.answers[:, 0].numpy(), key)
    counts = np.zeros((8, 101))
    np.add.at(counts, (position, key), 1)
    observed, expected = [], []
    for p, keys in allowed.items():
        assert counts[p].sum() == counts[p, keys].sum()  # no other key ever
        observed += counts[p, keys].tolist()
        expected += [n / 8 / len(keys)] * len(keys)
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    noise = np.delete(tokens, [0], axis=1)[position >= 3][:, -1]
    assert stats.chisquare(np.bincount(tokens[position < 7][:, 8], minlength=101)[20:101]).pvalue > 1e-3
    assert noise.min() >= 20


def test_identity_separation_by_enumeration() -> None:
    """Every latent, in sequences of random noise, stands where the reference rule says; train and test never meet."""
    random = np.random.default_rng(0)
    latents = list(itertools.product(range(8), range(20, 101)))
    tokens = random.integers(20, 101, size=(len(latents), 9))
    for row, (position, key) in enumerate(latents):
        tokens[row, position : position + 2] = 3, key
    expected = [1 if (key - position) % 8 == 0 else 0 for position, key in latents]
    assert IDENTITY.split_of(torch.from_numpy(tokens)).tolist() == expected
    proof = IDENTITY.proof()
    assert proof.holds
    assert proof.arrangements == {"train": expected.count(0), "test": expected.count(1)} == {"train": 567, "test": 81}
    assert proof.keys == proof.targets == {"train": 81, "test": 81}


def test_sequences_that_belong_nowhere() -> None:
    sequences = torch.tensor(
        [
            [43, 33, 30, 3, 20, 89, 44, 24, 56],
            [43, 33, 13, 3, 20, 89, 44, 24, 56],  # 13 is no item
            [43, 33, 30, 3, 3, 20, 44, 24, 56],
            [43, 33, 30, 50, 20, 89, 44, 24, 56],
            [43, 33, 30, 50, 20, 89, 44, 24, 3],
            [43, 33, 30, 3, 19, 89, 44, 24, 56],
        ]
    )
    assert IDENTITY.split_of(sequences).tolist() == [0, -1, -1, -1, -1, -1]
    assert IDENTITY.split_of(sequences[:, :8]).tolist() == [-1] * 6
    assert IDENTITY.oracle(sequences).known[:, 0].tolist() == [True, True, False, False, False, False]


def test_oracle_reads_the_papers_example() -> None:
    answer = IDENTITY.oracle(torch.tensor([[43, 33, 13, 3, 20, 89, 44, 24, 56], [12, 33, 14, 3, 42, 22, 32, 20, 28]]))
    assert answer.answers.tolist() == [[20], [42]]
    assert [(step.name, step.position.tolist(), step.value.tolist()) for step in answer.trace] == [
        ("anchor 1", [3, 3], [3, 3]),
        ("key", [4, 4], [20, 42]),
        ("operation 1", [3, 3], [20, 42]),
    ]


def test_two_distances_reads_the_key_after_next() -> None:
    sequences = torch.tensor([[30, 3, 41, 52, 60, 60, 60, 60, 60], [30, 4, 41, 52, 60, 60, 60, 60, 60]])
    assert TWO_DISTANCES.oracle(sequences).answers.tolist() == [[41], [52]]
    batch = TWO_DISTANCES.sample("train", 60_000, 0)
    assert batch.groups == ("3", "4")
    assert stats.chisquare(np.bincount(batch.group.numpy())).pvalue > 1e-3  # anchors uniform
    starts = batch.latents["anchor_position"][batch.group == 1]
    assert int(starts.max()) == 6 and stats.chisquare(np.bincount(starts.numpy())).pvalue > 1e-3


@pytest.mark.parametrize(
    ("first", "second", "total"), [(1, 1, 10), (1, 2, 6), (2, 1, 6), (3, 4, -10), (4, 3, -10), (2, 4, -7)]
)
def test_composite_applies_both_operations(first: int, second: int, total: int) -> None:
    sequences = torch.tensor([[60, 61, 50, first, second, 62, 63, 64, 65]])
    assert COMPOSITE.oracle(sequences).answers.tolist() == [[50 + total]]
    assert len(COMPOSITE.sample("train", 2, 0).groups) == 16


def test_multi_anchor_holds_out_each_anchors_own_keys() -> None:
    batch = MULTI_ANCHOR.sample("test", 20_000, 0)
    anchor, key = batch.latents["anchors"][:, 0], batch.latents["key"]
    assert ((key >= 12 + 8 * anchor) & (key <= 19 + 8 * anchor)).all()
    assert torch.equal(batch.answers[:, 0], key + anchor)
    proof = MULTI_ANCHOR.proof()
    assert proof.disjoint and proof.agreeing and proof.keys_covered
    assert not proof.targets_covered  # 21 = 20 + 1 has no other anchor and key


def build(**changes: object) -> AnchorFunction:
    return AnchorFunction.parse(changes, at="task")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"separation": {"residues": [0, 1, 2, 3, 4, 5, 6, 7]}}, "task.separation: leaves no train keys"),
        ({"separation": {"residues": []}}, "task.separation: leaves no test keys"),
        ({"separation": {"by_position": {"9": [0]}}}, "task.separation.by_position: 9 is outside"),
        (
            {"separation": {"by_position": {str(p): [0] for p in range(8)}}},
            "task.separation: asks in test for token 24, which is never a key in training",
        ),
        ({"separation": {"rule": "residue"}}, "task.separation.rule: unknown separation rule 'residue'"),
        ({"separation": {"rule": "anchor_based", "held_out": {"4": [[20, 21]]}}}, "task.separation.held_out: 4 is not"),
        ({"separation": {"modulos": 3}}, "task.separation.modulos: unknown field 'modulos'; did you mean 'modulus'"),
        ({"operations": {"3": "+101"}}, r"task.operations.3: \+101 takes token 100 out of the 201 tokens"),
        ({"operations": {"3": "-21 then \\+21"}}, "task.operations.3: cannot read"),
        ({"operations": {"3": "-21 then +21"}}, "task.operations.3: -21 then"),
        ({"operations": {"3": 5}}, "task.operations.3: should be text, got 5"),
        ({"operations": {"4": "x"}}, r"task.operations: are given for \[4\]; give one for each of \[3\]"),
        ({"placement": {"offset": {"4": 1}}}, r"task.placement.offset: is given for \[4\]"),
        ({"placement": {"length": 1}}, "task.placement.length"),
        ({"scoring": {"positions": [9]}}, "task.scoring.positions: 9 is outside the 9 positions"),
        ({"vocabulary": {"anchors": [20]}}, "task.vocabulary.anchors: anchor 20 stands among the items"),
        ({"vocabulary": {"size": 60_000, "items": [100, 59_999], "anchors": [1, 2, 3]},
          "operations": {"1": "x", "2": "x", "3": "x"}}, "task.placement: makes more than"),
    ],
)  # fmt: skip
def test_impossible_specs_name_the_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        build(**fields)
    assert "\n" not in str(caught.value)


def test_a_position_without_keys_is_passed_over() -> None:
    """Residues that hold nothing out behind most positions: test then uses the others, still uniformly."""
    rule = ModularResidue(by_position={2: (0, 1), 5: (2, 3)})
    batch = AnchorFunction(separation=rule).sample("test", 20_000, 0)
    counts = np.bincount(batch.latents["anchor_position"].numpy(), minlength=8)
    assert set(np.flatnonzero(counts)) == {2, 5}
    assert stats.chisquare(counts[[2, 5]]).pvalue > 1e-3


def test_direct_construction_reports_mistakes_in_one_line() -> None:
    with pytest.raises(SpecError, match=r"^vocabulary\.anchors: anchor 20"):
        AnchorFunction(vocabulary={"anchors": (20,)})
    with pytest.raises(SpecError, match=r"^operations.3: \+200 takes token"):
        AnchorFunction(operations={3: "+200"})


def test_operations_keep_their_meaning_on_disk() -> None:
    one = AnchorFunction(
        vocabulary=Vocabulary(size=300), operations={3: Operation.parse("x*2 then -1")}, placement=Placement(length=12)
    )
    data = one.model_dump(mode="json")
    assert data["operations"] == {"3": "*2 then -1"}
    assert parse_task(data) == one
