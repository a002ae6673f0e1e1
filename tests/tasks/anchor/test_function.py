"""Anchor functions: their law, separation, errors - against counts and answers worked out outside the package."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.tasks import (
    AnchorFunction,
    Labels,
    ModularResidue,
    Operation,
    Placement,
    Rule,
    Vocabulary,
    parse_task,
    task,
)
from tests.tasks.examples import TASKS

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
    assert proof.holds and proof.method == "enumeration"
    assert proof.numbers["latents"] == {"train": expected.count(0), "test": expected.count(1)}
    assert proof.numbers["latents"] == {"train": 567, "test": 81}
    assert proof.numbers["keys"] == proof.numbers["answers"] == {"train": 81, "test": 81}


def test_sequences_that_belong_nowhere_and_the_papers_example() -> None:
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
    assert IDENTITY.oracle(sequences).known[:, 0].tolist() == [True, True, False, False, False, False]
    answer = IDENTITY.oracle(torch.tensor([[43, 33, 13, 3, 20, 89, 44, 24, 56], [12, 33, 14, 3, 42, 22, 32, 20, 28]]))
    assert answer.answers.tolist() == [[20], [42]]
    assert [(step.name, step.position.tolist(), step.value.tolist()) for step in answer.trace] == [
        ("anchor 1", [3, 3], [3, 3]),
        ("key 1", [4, 4], [20, 42]),
        ("A(x)", [3, 3], [20, 42]),
    ]


def test_an_example_prints_as_its_sequence_answer_split_and_trace() -> None:
    plus_five = AnchorFunction(name="plus_five", operations={3: "+5"}, placement=Placement(length=4))
    (example,) = plus_five.render(torch.tensor([[3, 40, 51, 60]]))
    trace = "anchor 3 at position 0; key 40 at position 1; A(x) = 45 (+5)"
    assert str(example) == f"3 40 51 60 -> 45 ({example.split}): {trace}"


@pytest.mark.parametrize("field", ["rules", "operations", "shares"])
def test_the_order_of_keys_changes_neither_address_nor_draw(field: str) -> None:
    one = task("anchor/two-distances").replace(shares={"near": 0.25, "far": 0.75})
    turned = one.replace(**{field: dict(reversed(getattr(one, field).items()))})
    assert turned == one and turned.model_dump_json() == one.model_dump_json()
    assert torch.equal(turned.sample("train", 500, 0).inputs, one.sample("train", 500, 0).inputs)


@pytest.mark.parametrize(("first", "second", "answer", "swapped"), [(1, 2, 103, 106), (2, 1, 106, 103)])
@pytest.mark.parametrize("order", ["key first", "anchors first"])
def test_composite_applies_the_first_anchor_first(
    order: str, first: int, second: int, answer: int, swapped: int
) -> None:
    """Doubling and adding 3 do not commute: 2 * 50 + 3 = 103, 2 * (50 + 3) = 106."""
    composite = task("anchor/composite", operations=("*2", "+3", "x", "x"), size=401, order=order)
    written = [50, first, second] if order == "key first" else [first, second, 50]
    sequences = torch.tensor([[60, 61, *written, 62, 63, 64, 65]])
    assert composite.oracle(sequences).answers.item() == answer
    assert composite.render(sequences)[0].trace[-1].startswith(f"B(A(x)) = {answer} (")
    rivals = composite.reader.read(sequences.numpy()).rivals
    assert {name: value.item() for name, value in rivals.items()} == {
        "composed": answer, "order swapped": swapped, "symmetric": swapped, "memorised": answer,
    }  # fmt: skip


def test_moving_keys_are_a_number_from_20_to_99_plus_the_position() -> None:
    """The data of the authors' code, listed: a number drawn, put into a split by its residue, and moved by p."""
    one = task("anchor/identity", moving_keys=True)
    numbers = {"train": [n for n in range(20, 100) if n % 8], "test": [n for n in range(20, 100) if n % 8 == 0]}
    for split, drawn in numbers.items():
        batch = one.sample(split, 20_000, seed=0)
        places, keys = batch.latents["anchor_positions"][:, 0], batch.latents["keys"][:, 0]
        assert set(zip(places.tolist(), keys.tolist(), strict=True)) == {(p, n + p) for p in range(8) for n in drawn}
        assert (batch.inputs.gather(1, places[:, None] + 1) == keys[:, None]).all()
        assert torch.equal(one.oracle(batch.inputs).answers, batch.answers) and torch.equal(batch.answers[:, 0], keys)
        assert (one.split_of(batch.inputs) == one.splits.index(split)).all()
    low = torch.tensor([[50, 50, 50, 50, 3, 23, 50, 50, 50]])  # 23 = 19 + 4
    assert one.split_of(low).tolist() == [-1]
    assert "moving" not in str(task("anchor/identity").model_dump())  # the other rule's runs keep their address


def test_working_memory_applies_the_anchor_beside_the_key_first() -> None:
    """Anchor 1 doubles, 2 adds 1, 3 adds 3, 4 keeps: 2 * 50 + 3 = 103 and 50 + 1 + 3 = 54, with noise between."""
    memory = task("anchor/working-memory", operations=("*2", "+1", "+3", "x"), length=9, size=301)
    sequences = torch.tensor([[60, 50, 1, 61, 62, 3, 63, 64, 65], [60, 50, 2, 61, 62, 3, 63, 64, 65]])
    assert memory.oracle(sequences).answers.tolist() == [[103], [54]]


def test_rules_then_anchors_then_positions_are_uniform() -> None:
    """Half of the sequences for each rule, though one has three anchors at eight places, the other one at five."""
    one = AnchorFunction(
        vocabulary=Vocabulary(anchors=(1, 2, 3, 4)),
        operations=dict.fromkeys((1, 2, 3, 4), Operation()),
        rules={"near": Rule.parse("A x -> x"), "far": Rule.parse("4 . . . x -> x")},
        placement=Placement(choices={"A": (1, 2, 3)}),
        separation=ModularResidue(position="key"),
    )
    n = 120_000
    for split in one.splits:
        tokens = one.sample(split, n, 0).inputs.numpy()
        row, position = np.nonzero(tokens < 20)
        assert row.tolist() == list(range(n))
        counts = np.zeros((5, 9))
        np.add.at(counts, (tokens[row, position], position), 1)
        assert counts[1:4, 8].sum() == counts[4, 5:].sum() == 0
        observed = [*counts[1:4, :8].ravel(), *counts[4, :5]]
        assert stats.chisquare(observed, [n / 2 / 3 / 8] * 24 + [n / 2 / 5] * 5).pvalue > 1e-3


@pytest.mark.parametrize("targets", ["label", "distribution"])
def test_agreement_with_rivals_is_measured_with_statistical_labels_too(targets) -> None:
    of = AnchorFunction(labels=Labels(copies=5, targets=targets), rivals={"three more": "x + 3"})
    batch = of.sample("train", 40, 0)
    says = torch.nn.functional.one_hot(batch.latents["keys"] + 3, 201).float()
    assert of.metrics(says, batch)["agrees: three more"].unique().tolist() == [1]
    assert of.metrics(says.roll(1, dims=-1), batch)["agrees: three more"].unique().tolist() == [0]


def test_composite_splits_and_rivals() -> None:
    """Pair (4, 3) mislabelled as -6: what each rival says of it and of the unseen pair (3, 4)."""
    composite = task("anchor/composite", exceptions={"4,3": "-6"})
    assert composite.splits == ("train", "test on data", "test on task") and len(composite.groups) == 16
    unseen = composite.sample("test on task", 2000, 0)
    assert (unseen.latents["anchors"] == torch.tensor([3, 4])).all()
    key = unseen.latents["keys"]
    offsets = {name: (value - key).unique().tolist() for name, value in unseen.rivals.items() if name != "memorised"}
    assert offsets == {"composed": [-10], "order swapped": [-10], "symmetric": [-6]}
    assert torch.equal(unseen.answers, key - 10) and (unseen.rivals["memorised"] == -1).all()
    mislabelled = composite.oracle(torch.tensor([[60, 61, 50, 4, 3, 62, 63, 64, 65]]))
    assert mislabelled.answers.item() == 44
    for split, held_out in (("train", False), ("test on data", True)):
        batch = composite.sample(split, 4000, 0)
        residue = (batch.latents["keys"] - batch.latents["key_positions"]) % 8
        assert ((residue == 0) == held_out).all()
        assert not (batch.latents["anchors"] == torch.tensor([3, 4])).all(dim=1).any()


def test_multi_anchor_holds_out_each_anchors_own_keys() -> None:
    multi_anchor = task("anchor/multi-anchor")
    batch = multi_anchor.sample("test", 20_000, 0)
    anchor, key = batch.latents["anchors"][:, 0], batch.latents["keys"][:, 0]
    assert ((key >= 12 + 8 * anchor) & (key <= 19 + 8 * anchor)).all()
    assert torch.equal(batch.answers[:, 0], key + anchor)
    proof = multi_anchor.proof()
    assert proof.holds and proof.numbers["meeting"] == 0 and not proof.numbers["unseen"]["keys"]
    # By hand: anchor 1 asks for 21..28 of which 21 = 20 + 1 alone; anchor 10 for 102..110, 110 = 100 + 10 alone.
    made = {a: {x + a for x in range(20, 101) if not 12 + 8 * a <= x <= 19 + 8 * a} for a in range(1, 11)}
    asked = {x + a for a in range(1, 11) for x in range(12 + 8 * a, 20 + 8 * a)}
    assert proof.numbers["unseen"]["answers"] == sorted(asked - set().union(*made.values()))


def test_reading_comprehension_asks_each_pair_alike() -> None:
    one = task("anchor/reading-comprehension")
    batch = one.sample("train", 40_000, 0)
    tokens = batch.inputs
    asked = (tokens[:, :8:2] == tokens[:, 8:]).int()
    assert (asked.sum(dim=1) == 1).all()
    assert torch.equal(tokens[:, 1::2].gather(1, asked.argmax(dim=1, keepdim=True)), batch.answers)
    assert stats.chisquare(asked.sum(dim=0).numpy()).pvalue > 1e-3
    for split, held_out in (("train", False), ("test", True)):
        keys = one.sample(split, 2000, 1).inputs[:, 1:8:2]
        assert (((keys - torch.tensor([1, 3, 5, 7])) % 8 == 0) == held_out).all()


def test_classification_never_asks_about_ties() -> None:
    batch = task("anchor/classification").sample("test", 20_000, 0)
    distance = (batch.inputs[:, 0:8:2] - batch.inputs[:, 8:]).abs().sort(dim=1).values
    assert (distance[:, 0] < distance[:, 1]).all()


def test_synonym_has_the_papers_numbers() -> None:
    one = task("anchor/synonym", total=4000)
    batch = one.sample("train", 4000, 3)
    count = {name: int((batch.group == index).sum()) for index, name in enumerate(batch.groups)}
    rare, common = ["1,9", "2,9", "9,1", "9,2"], ["1,2", "2,1", "1,4", "4,1", "2,4", "4,2"]
    new = ["1,3", "3,1", "2,3", "3,2", "4,3", "3,4"]
    assert {name: n for name, n in count.items() if n} == {
        **dict.fromkeys(rare, 100),
        **dict.fromkeys(common + new, 300),
    }
    plain = task("anchor/synonym", total=4000, synonyms=False).sample("train", 4000, 3)
    assert torch.bincount(plain.group).unique().tolist() == [0, 400]
    assert set(map(tuple, one.sample("test on task", 200, 0).latents["anchors"].tolist())) == {(4, 9), (9, 4)}


@pytest.mark.parametrize("kind", ["first", "second"])
def test_statistical_labels(kind: str) -> None:
    batch = task("anchor/statistical", kind=kind).sample("train", 10_000, 0)
    changed = (batch.targets != batch.answers)[:, 0]
    assert torch.equal(batch.targets[changed], batch.answers[changed] + 1)
    assert torch.equal(batch.group.bool(), changed) and batch.groups == ("unchanged", "changed")
    if kind == "first":
        assert torch.equal(batch.inputs[0::5], batch.inputs[4::5]) and changed.reshape(-1, 5)[:, :4].sum() == 0
        assert changed.reshape(-1, 5)[:, 4].all()
    else:
        assert stats.binomtest(int(changed.sum()), 10_000, 0.2).pvalue > 1e-3


def test_statistical_metrics_by_hand_and_distribution_targets() -> None:
    """Outputs that put 0.7 on x, 0.1 on x + 1 and 0.2 elsewhere: |0.7-0.8| + |0.1-0.2| + 0.2, halved."""
    one = task("anchor/statistical")
    batch = one.sample("test", 50, 0)
    probability = torch.full((50, 1, 201), 0.2 / 199)
    probability.scatter_(2, batch.answers.unsqueeze(-1), 0.7).scatter_(2, batch.answers.unsqueeze(-1) + 1, 0.1)
    found = {name: float(value.mean()) for name, value in one.metrics(probability.log(), batch).items()}
    expected = {"accuracy": 1, "label accuracy": 0.8, "probability of answer": 0.7, "probability of changed": 0.1,
                "total variation": 0.2}  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-5)
    batch = task("anchor/statistical", targets="distribution").sample("train", 20, 0)
    key = batch.latents["keys"]
    assert torch.allclose(batch.targets.sum(dim=-1), torch.ones(20, 1))
    assert torch.allclose(batch.targets[:, 0].gather(1, key), torch.tensor(0.8))
    assert torch.allclose(batch.targets[:, 0].gather(1, key + 1), torch.tensor(0.2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"separation": {"residues": [0, 1, 2, 3, 4, 5, 6, 7]}}, "task.separation: leaves no train keys"),
        ({"separation": {"residues": []}}, "task.separation: leaves no test keys"),
        ({"separation": {"by_position": {"9": [0]}}}, "task.separation.by_position: 9 is outside"),
        (
            {"separation": {"by_position": {str(p): [0] for p in range(8)}}},
            "task.separation: has token 24 as a key in test, but never in training",
        ),
        ({"separation": {"rule": "residue"}}, "task.separation.rule: unknown separation rule 'residue'"),
        ({"separation": {"rule": "anchor_based", "held_out": {"4": [[20, 21]]}}}, "task.separation.held_out: 4 is not"),
        ({"separation": {"modulos": 3}}, "task.separation.modulos: unknown field 'modulos'; did you mean 'modulus'"),
        ({"operations": {"3": "+101"}}, r"task.operations.3: \+101 leaves the 201 tokens where A = 3, x = 100"),
        ({"operations": {"3": "-21 then \\+21"}}, "task.operations.3: cannot read"),
        ({"operations": {"3": "-21 then +21"}}, "task.operations.3: -21 then"),
        ({"operations": {"3": 5}}, "task.operations.3: should be text, got 5"),
        (
            {"operations": {"4": "x"}, "vocabulary": {"anchors": [3]}},
            r"task.operations.4: is not an anchor of the vocabulary; name it in",
        ),
        ({"operations": {}}, r"task.operations: anchor 3 has none; give one for each of \[3\]"),
        ({"rules": ["A x -> x"]}, r"task.rules: are given by name, got \['A x -> x'\]; write {'rule': 'A x"),
        ({"placement": {"length": "9"}}, "task.placement.length: is text, '9'; write it without quotes"),
        ({"placement": {"choices": {"A": [4]}}}, r"task.placement.choices.A: 4 is not an anchor"),
        ({"placement": {"choices": {"C": [3]}}}, r"task.placement.choices.C: is not a slot of any pattern; use A"),
        ({"placement": {"choices": {"A": []}}}, r"task.placement.choices.A: \[\] is not a choice"),
        ({"rules": {"one": "A x"}}, "task.rules.one: 'A x' has no `->`"),
        ({"rules": {"one": "A x -> x + z"}}, "task.rules.one: `x \\+ z` mentions 'z'"),
        ({"rules": {"one": "4 x -> x"}}, "task.placement.pattern: `4 x`: 4 is not an anchor"),
        ({"rules": {"one": "A ... x -> x"}}, "task.placement.pattern: `A ... x` leaves the position"),
        ({"rules": {"one": "A x -> x + 200"}}, "task.rules.one: `x \\+ 200` leaves the 201 tokens"),
        ({"rules": {"one": "A x -> (x * 2147483647 * 30000000 - 5) % 53"}},  # 201 * 2147483647 * 30000000 > 2**62
         r"task.rules.one.answer: '\(x \* 2147483647 \* 30000000 - 5\) % 53' may exceed 64 bits"),
        ({"rivals": {"one": "nearest(x, -x * x * x * x * x * x * x * x * x, x)"}},  # 201**9 > 2**62 > 201**8
         r"task.rivals.one.answer: 'nearest.* may exceed 64 bits; multiply smaller"),
        ({"rivals": {"deep": "x * 2147483647 * 2147483647 * " + "-" * 360 + "x"}}, "task.rivals.deep.answer: .*64"),
        ({"rules": {"sum": "A x y z -> x + y"}, "placement": {"length": 6}, "vocabulary": {"size": 200}},
         r"task.rules.sum: `x \+ y` leaves the 200 tokens where A = 3, x = 100, y = 100"),  # 3 * 81**3 > 2**20
        ({"rules": {"difference": "A x y z -> x + 70 - z"}, "placement": {"length": 6}},
         r"task.rules.difference: `x \+ 70 - z` leaves the 201 tokens where A = 3, x = 20, y = 20, z = 100"),
        ({"rules": {}}, "task.rules"),
        ({"rivals": {"twice": "A(A(y))"}}, "task.rivals.twice: `A\\(A\\(y\\)\\)` mentions 'y'"),
        ({"rivals": {"memorised": "trained(A, A, x)"}}, "task.rivals.memorised: .* but `A x` holds no pair of anchors"),
        ({"rivals": {"changed": "x"}, "labels": {}}, "task.rivals.changed: is the name of the changed label; choose"),
        ({"rules": {"three": "A B C x -> trained(A, B, x)"}}, "task.rules.three: .* holds no pair of anchors"),
        ({"exceptions": {"4,3": "+1"}}, "task.exceptions.4,3: is not a pair of anchors"),
        ({"exceptions": {"3,3": "+1"}, "rules": {"two": "A B x -> B(A(x))"}},
         r"task.exceptions: are applied by no answer; write pair\(A, B, x\) in a rule"),
        ({"shares": {"4": 1}}, "task.shares.4: is not a group"),
        ({"group_by": "label"}, "task.group_by: labels are not statistical"),
        ({"separation": {"rule": "composite_anchor", "unseen": [[3, 3]]}}, "task.separation.unseen: \\[3, 3\\] is no"),
        ({"separation": {"rule": "composite_anchor", "unseen": [[3]]}}, "task.separation: leaves no train keys"),
        ({"separation": {"rule": "combined", "parts": [{"by_position": {"9": [0]}}]}},
         "task.separation.parts.0.by_position: 9 is outside"),
        ({"placement": {"length": 1}}, "task.placement.length"),
        ({"scoring": {"positions": [9]}}, "task.scoring.positions: 9 is outside the 9 positions"),
        ({"vocabulary": {"anchors": [20]}}, "task.vocabulary.anchors: anchor 20 is among the items"),
        ({"vocabulary": {"size": 65_000, "items": [100, 64_999], "anchors": list(range(60))},
          "operations": {str(a): "x" for a in range(60)}, "rules": {"two": "x A B -> x"}},
         "task.placement: makes too many frames for this many items"),
        ({"placement": {"distinct": True}, "rules": {"two": "A B x -> x"}}, "task.placement.distinct: leaves no"),
    ],
)  # fmt: skip
def test_impossible_specs_name_the_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        AnchorFunction.parse(fields, at="task")
    assert "\n" not in str(caught.value)
    if fields.get("vocabulary") == {"anchors": [20]}:  # also where it is constructed directly
        with pytest.raises(SpecError, match=r"^vocabulary\.anchors: anchor 20"):
            AnchorFunction(**fields)


def test_a_proof_by_samples_compares_the_answers_of_distributions_too(monkeypatch) -> None:
    monkeypatch.setattr("anchorlab.tasks.anchor.proof.MOST_LATENTS", 0)
    monkeypatch.setattr(AnchorFunction, "proof_samples", 500)
    held_out = {"rule": "anchor_based", "held_out": {3: [(12, 13)]}, "covering": False}
    vocabulary = Vocabulary(size=30, items=(10, 13))
    for labels in (None, Labels(targets="distribution")):
        one = AnchorFunction(operations={3: "+5"}, vocabulary=vocabulary, separation=held_out, labels=labels)
        proof = one.proof()
        assert proof.method == "samples" and proof.holds
        assert proof.numbers["answers"] == {"train": 2, "test": 2}
        assert proof.numbers["unseen"] == {"keys": [12, 13], "answers": [17, 18]}


def test_pairs_in_training_are_known_beside_a_rule_with_more_anchors() -> None:
    one = AnchorFunction(rules={"pair": "x A B -> trained(A, B, x)", "three": "A B C x -> C(x)"})
    batch = one.sample("train", 100, 0)
    assert set(batch.latents["rule"].tolist()) == {0, 1}
    assert torch.equal(batch.answers, batch.latents["keys"][:, :1])  # all operations are the identity


def test_an_anchor_repeated_anywhere_is_shown_where_it_is_and_does_not_make_splits_meet() -> None:
    """In `A x ... A` the second anchor is free: one latent has several frames, all of one split."""
    one = AnchorFunction(rules="A x ... A -> A(x)", placement={"length": 5}, separation={"modulus": 4})
    (example,) = one.render(torch.tensor([[3, 40, 50, 60, 3]]))
    assert [token.role for token in example.tokens] == ["anchor", "key", "noise", "noise", "anchor"]
    proof = one.proof()
    assert proof.holds and proof.numbers["meeting"] == 0
    assert sum(proof.numbers["latents"].values()) == 6 * 81  # 3 + 2 + 1 frames, each with 81 keys


def test_a_position_without_keys_is_passed_over() -> None:
    """Residues that hold nothing out behind most positions: test then uses the others, still uniformly."""
    rule = ModularResidue(by_position={2: (0, 1), 5: (2, 3)})
    batch = AnchorFunction(separation=rule).sample("test", 20_000, 0)
    counts = np.bincount(batch.latents["anchor_positions"][:, 0].numpy(), minlength=8)
    assert set(np.flatnonzero(counts)) == {2, 5}
    assert stats.chisquare(counts[[2, 5]]).pvalue > 1e-3


def test_anchors_are_by_default_those_of_the_operations_and_a_single_rule_may_be_text() -> None:
    said = AnchorFunction(operations={3: "+1", 7: "-1"}, vocabulary=Vocabulary(anchors=(3, 7)))
    assert AnchorFunction(operations={7: "-1", 3: "+1"}) == said
    assert parse_task({"family": "anchor", "name": said.name, "operations": {"3": "+1", "7": "-1"}}) == said
    wide = AnchorFunction(operations={3: "+1", 7: "-1"}, vocabulary={"size": 300})
    assert (wide.vocabulary.size, wide.vocabulary.anchors) == (300, (3, 7))
    assert AnchorFunction(rules="A x -> A(x)").rules == {"rule": Rule.parse("A x -> A(x)")}
    one = AnchorFunction(
        vocabulary=Vocabulary(size=300), operations={3: Operation.parse("x*2 then -1")}, placement=Placement(length=12)
    )
    data = one.model_dump(mode="json")
    assert data["operations"] == {"3": "*2 then -1"}
    assert parse_task(data) == one


ANCHOR_FUNCTIONS = {name: one for name, one in TASKS.items() if isinstance(one, AnchorFunction)}


@pytest.mark.parametrize("one", ANCHOR_FUNCTIONS.values(), ids=ANCHOR_FUNCTIONS.keys())
def test_no_latent_of_test_recurs_in_training(one: AnchorFunction) -> None:
    """In the paper's code one task moves its key after the split was decided: every pair of test recurs in training."""
    drawn = []
    for split in one.splits:
        latents = one.sample(split, 30_000, 1).latents
        columns = [value if value.ndim == 2 else value[:, None] for value in latents.values()]
        rows = torch.cat(columns, dim=1).numpy()
        drawn.append(set(rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()))
    assert all(drawn) and all(not first & second for first, second in itertools.combinations(drawn, 2))
