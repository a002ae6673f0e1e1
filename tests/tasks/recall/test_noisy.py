"""Noisy recall and noisy associative memory: against plain loops and the laws of the paper, and ideal predictors."""

import itertools
import math
from hashlib import sha256
from itertools import pairwise, permutations, product

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.tasks import Batch, NoisyAssociative, NoisyRecall, task
from anchorlab.tasks.metrics import loss_per_position
from anchorlab.tasks.recall.markov import table_counts

COUNTS = table_counts("shakespeare")
UNIGRAMS = COUNTS.sum(axis=1) / COUNTS.sum()


def outputs_of(batch: Batch, row: int) -> dict[int, int]:
    return dict(zip(batch.latents["trigger"][row].tolist(), batch.latents["output"][row].tolist(), strict=True))


@pytest.mark.parametrize(
    "fields",
    [{}, {"noise": "existing", "triggers": (1, 43, 58)}, {"drawn": 4, "source": "uniform"},
     {"drawn": 2, "noise": "existing", "alpha": 0.3}, {"noises": 3}, {"drawn": 2, "noises": 2},
     {"noises": 2, "by_trigger": True, "triggers": (1, 43, 58)}],
)  # fmt: skip
@pytest.mark.parametrize("split", ["train", "clean"])
def test_every_sequence_obeys_the_law(fields: dict[str, object], split: str) -> None:
    one = NoisyRecall(length=80, **fields)
    noises = {2} if one.noise == "existing" else set(range(65, 65 + one.noises))
    each = {1: {65}, 43: {66}, 58: {65}} if one.by_trigger else {}
    met = set()
    batch = one.sample(split, 150, 0)
    for row, tokens in enumerate(batch.inputs.tolist()):
        outputs = outputs_of(batch, row)
        assert len(outputs) == (one.drawn or len(one.triggers)) and tokens[-1] in outputs
        assert all(0 <= y < 65 for y in outputs.values())
        for before, after in itertools.pairwise(tokens[:-1]):
            if before in outputs:
                assert after == outputs[before] or (after in each.get(before, noises) and split == "train")
                met |= {after} & noises
            elif one.source == "shakespeare" and before < 65:
                assert COUNTS[before, after] > 0
        assert batch.answers[row].tolist() == [outputs[tokens[-1]]]
        assert batch.targets[row, 0].item() in {outputs[tokens[-1]], *each.get(tokens[-1], noises)}
    assert torch.equal(batch.latents["noisy"], torch.isin(batch.targets, torch.tensor([*noises])))
    assert met == (noises if split == "train" else met & {2})  # "!" may be an output
    assert batch.positions.tolist() == [79] and batch.weights is None


def test_frequencies_of_the_papers_setting() -> None:
    one = NoisyRecall(length=20, alpha=0.3)
    assert one.noise_token == 65 and one.shape.output_size == 66 and NoisyRecall().length == 256
    batch = one.sample("train", 40_000, 1)
    tokens = batch.inputs.numpy()
    assert (tokens[:, -1] == 1).all()
    assert stats.chisquare(np.bincount(batch.latents["output"][:, 0], minlength=65)).pvalue > 1e-3
    often = UNIGRAMS > 1e-3
    first = np.bincount(tokens[:, 0], minlength=65)[often]
    assert stats.chisquare(first, UNIGRAMS[often] / UNIGRAMS[often].sum() * first.sum()).pvalue > 1e-3
    # After the trigger: noise in 30 % of the cases, in the context and in the target.
    rows, position = np.nonzero(tokens[:, :-2] == 1)
    noisy = int((tokens[rows, position + 1] == 65).sum())
    assert stats.binomtest(noisy, rows.size, 0.3).pvalue > 1e-3
    assert stats.binomtest(int(batch.latents["noisy"].sum()), 40_000, 0.3).pvalue > 1e-3
    # After the appended noise token: the unigrams.
    rows, position = np.nonzero(tokens[:, :-2] == 65)
    after = np.bincount(tokens[rows, position + 1], minlength=66)[:65][often]
    assert stats.chisquare(after, UNIGRAMS[often] / UNIGRAMS[often].sum() * after.sum()).pvalue > 1e-3
    assert (one.sample("clean", 4000, 0).inputs != 65).all()


def test_bigrams_elsewhere_follow_the_table() -> None:
    tokens = NoisyRecall(length=100).sample("train", 3000, 3).inputs.numpy()[:, :-1]
    for before in (53, 43, 0):  # o, e, newline
        rows, position = np.nonzero(tokens[:, :-1] == before)
        observed = np.bincount(tokens[rows, position + 1], minlength=66)[:65]
        expected = COUNTS[before] / COUNTS[before].sum() * observed.sum()
        often = expected > 5
        assert observed[COUNTS[before] == 0].sum() == 0
        scaled = expected[often] * observed[often].sum() / expected[often].sum()
        assert stats.chisquare(observed[often], scaled).pvalue > 1e-3


@pytest.mark.parametrize(
    "fields",
    [{"triggers": (1,)}, {"triggers": (1, 43), "noise": "existing"}, {"drawn": 3}, {"triggers": (1,), "max_scored": 5}],
)
def test_scored_after_every_second_and_later_trigger(fields: dict[str, object]) -> None:
    one = NoisyRecall(length=60, scored="after_trigger", **fields)
    batch = one.sample("train", 300, 0)
    assert batch.positions.shape == batch.targets.shape == batch.weights.shape == (300, one.width)
    beyond = 0
    for row, tokens in enumerate(batch.inputs.tolist()):
        outputs = outputs_of(batch, row)
        wanted = [t for t in range(58) if tokens[t] in outputs and tokens[t] in tokens[:t]]
        beyond += max(0, len(wanted) - (one.width - 1))
        wanted = wanted[max(0, len(wanted) - (one.width - 1)) :]
        scored = batch.positions[row][batch.weights[row] > 0].tolist()
        assert scored == wanted + ([59] if tokens[-1] in tokens[:-1] else [])
        assert batch.positions[row, -1] == 59
        for position, target, answer in zip(
            batch.positions[row].tolist(), batch.targets[row].tolist(), batch.answers[row].tolist(), strict=True
        ):
            assert answer == outputs[tokens[position]]
            assert target == (tokens[position + 1] if position < 59 else target)
            assert target in (answer, one.noise_token)
    assert (beyond > 0) == (one.max_scored == 5)


def test_derived_width_loses_few_positions() -> None:
    """About 37 positions a sequence are scored at T = 256; less than one in 200 is beyond the derived width."""
    one = NoisyRecall(scored="after_trigger")
    tokens = one.sample("train", 2000, 0).inputs.numpy()
    counts = np.maximum((tokens[:, :-2] == 1).sum(axis=1) - 1, 0)
    assert 33 < counts.mean() < 41
    assert np.maximum(counts - (one.width - 1), 0).sum() / counts.sum() < 0.005
    assert one.width < 80


def test_oracle_reads_the_context_alone() -> None:
    """Space is 1, noise 65; t (58) followed it, then noise; a y after z_{T-1} does not count, for z_T is set."""
    one = NoisyRecall(length=8)
    sequences = torch.tensor(
        [
            [43, 1, 58, 50, 1, 65, 50, 1],
            [43, 1, 65, 50, 1, 65, 50, 1],  # only noise
            [43, 50, 50, 50, 50, 50, 1, 1],  # the space at T-1 is followed by z_T, which was set
            [43, 1, 58, 50, 1, 57, 50, 1],  # two different outputs: not this law
            [1, 1, 1, 65, 1, 1, 65, 1],  # y is the trigger itself
        ]
    )
    answer = one.oracle(sequences)
    assert answer.known[:, 0].tolist() == [True, False, False, False, True]
    assert answer.answers[[0, 4], 0].tolist() == [58, 1]
    assert answer.trace[1].position[0] == 1 and answer.trace[2].position[0] == 2
    assert one.split_of(sequences).tolist() == [0, 0, 1, -1, 0]
    assert one.split_of(torch.tensor([[43, 50, 50, 50, 50, 50, 50, 43]])).tolist() == [-1]
    assert one.split_of(torch.full((1, 8), 99)).tolist() == [-1]
    # in tiny Shakespeare u follows q (55), and z never does
    after_q = torch.tensor([[43, 55, 59, 50, 1, 65, 50, 1], [43, 55, 64, 50, 1, 65, 50, 1]])
    assert one.split_of(after_q).tolist() == [0, -1]
    # if two triggers are drawn, q may be the other one, but then it has one output only
    drawn = torch.tensor([[43, 55, 64, 50, 1, 65, 50, 1], [43, 55, 64, 55, 62, 50, 50, 1]])
    assert one.replace(drawn=2).split_of(drawn).tolist() == [0, -1]
    example = one.render(sequences)[0]
    assert [token.text for token in example.tokens] == ["e", "space", "t", "l", "space", "noise", "l", "space"]
    assert [token.role for token in example.tokens] == [
        "plain", "trigger", "output", "plain", "trigger", "noise", "plain", "trigger",
    ]  # fmt: skip
    assert example.answer == "t" and example.trace[-1] == "t after it"


def test_oracle_looks_only_back_from_each_position_and_metrics_by_hand() -> None:
    one = NoisyRecall(length=8, scored="after_trigger", max_scored=4)
    answer = one.oracle(torch.tensor([[1, 65, 1, 58, 1, 58, 50, 1]]))
    # Scored: positions 2 (only noise so far), 4 (58 seen), 7; the first column only fills the row with position 7.
    assert answer.known.tolist() == [[True, False, True, True]]
    assert answer.answers[0, [0, 2, 3]].tolist() == [58, 58, 58]
    one = NoisyRecall(length=10)
    batch = one.sample("train", 3, 0)
    logits = torch.zeros(3, 1, 66)
    logits[..., 65] = np.log(66.0)  # 66 against 65 others at 1 each
    metrics = one.metrics(logits, batch)
    assert metrics["noise"].flatten().tolist() == pytest.approx([66 / 131] * 3)
    assert metrics["right"].flatten().tolist() == pytest.approx([1 / 131] * 3)
    assert metrics["accuracy"].flatten().tolist() == [0, 0, 0]
    assert metrics["predicts_noise"].flatten().tolist() == [1, 1, 1]


def test_several_noise_tokens_are_read_and_measured_as_one() -> None:
    """Space and e are triggers; the noise after them is 65 and 66."""
    one = NoisyRecall(length=8, noises=2, by_trigger=True, triggers=(1, 43))
    sequences = torch.tensor(
        [
            [1, 65, 43, 66, 1, 58, 50, 1],
            [1, 65, 43, 65, 1, 58, 50, 1],  # the other trigger's noise
            [1, 66, 43, 50, 50, 50, 50, 43],  # likewise
        ]
    )
    answer = one.oracle(sequences)
    assert answer.answers[[0, 2], 0].tolist() == [58, 50] and answer.known[:, 0].tolist() == [True, True, True]
    assert one.split_of(sequences).tolist() == [0, -1, -1]
    assert one.replace(by_trigger=False).split_of(sequences).tolist() == [0, 0, 0]
    assert [token.text for token in one.render(sequences)[0].tokens[:4]] == ["space", "noise 1", "e", "noise 2"]
    assert [token.role for token in one.render(sequences)[0].tokens[:4]] == ["trigger", "noise"] * 2
    batch = one.sample("train", 2, 0)
    logits = torch.zeros(2, 1, 67)
    logits[0, :, 65], logits[0, :, 66], logits[1, :, 66] = np.log(4.0), np.log(3.0), np.log(5.0)
    metrics = one.metrics(logits, batch)
    assert metrics["noise"].flatten().tolist() == pytest.approx([7 / 72, 6 / 71])
    assert metrics["predicts_noise"].flatten().tolist() == [1, 1]
    random, later = (NoisyRecall(length=60, noises=count).sample("train", 3000, 1).targets for count in (2, 1))
    counts = [int((random == token).sum()) for token in (65, 66)]
    assert stats.binomtest(counts[0], sum(counts), 0.5).pvalue > 1e-3
    assert stats.binomtest(sum(counts), 3000, 0.5).pvalue > 1e-3
    assert int(later.max()) == 65


def test_one_noise_token_is_written_and_drawn_as_before_there_were_several() -> None:
    """The digest of sequences that were drawn before."""
    written = NoisyRecall(length=30).model_dump_json()
    assert "noises" not in written and "by_trigger" not in written
    assert "noises" in NoisyRecall(length=30, noises=2).model_dump_json()
    inputs = NoisyRecall(length=30, triggers=(1, 43)).sample("train", 200, 5).inputs
    assert sha256(inputs.numpy().tobytes()).hexdigest()[:16] == "8cb67cf6e734aba8"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"triggers": (65,)}, "triggers: 65 is not a token"),
        ({"triggers": (1, 1)}, "triggers: .* names one twice"),
        ({"triggers": (2,), "noise": "existing"}, "triggers: 2 is the noise token"),
        ({"drawn": 66}, "drawn: 66 is more than the 65"),
        ({"drawn": 65, "noise": "existing"}, "drawn: 65 is more than the 64"),
        ({"noises": 2, "noise": "existing"}, "noises: 2 noise tokens are not one existing token"),
        ({"by_trigger": True, "triggers": (1, 2)}, "by_trigger: needs fixed triggers and noise tokens, two or more"),
        ({"by_trigger": True, "noises": 2}, "by_trigger: needs fixed triggers and noise tokens, two or more of each"),
        ({"by_trigger": True, "noises": 2, "triggers": (1, 2), "drawn": 2}, "by_trigger: needs fixed triggers"),
        ({"max_scored": 5}, "max_scored: applies only to scored = after_trigger"),
        ({"max_scored": 256, "scored": "after_trigger"}, "max_scored: 256 is not below the length 256"),
        ({"length": 2}, "length"),
        ({"alpha": float("nan")}, "alpha"),
        ({"source": "milton"}, "source: unknown table 'milton'; known: shakespeare, uniform"),
    ],
)
def test_impossible_specs(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        NoisyRecall(**fields)


@pytest.mark.parametrize(("field", "value"), [("inputs", 1), ("alpha", 1.5), ("alpha", -0.1), ("alpha", float("nan"))])
def test_impossible_memories(field, value):
    with pytest.raises(SpecError, match=f"^{field}:"):
        NoisyAssociative(**{field: value})


# The ideal predictor of noisy recall, against the law summed over every sequence and every y.
LENGTH, TOKENS, ALPHA = 5, 3, 0.3


def law(task, sequence, outputs):
    """The probability of z_1 .. z_{T+1} given the outputs of the triggers; z_T is set to any of them."""
    chain = task.chain
    probability = chain.initial[sequence[0]]
    for position, (before, token) in enumerate(pairwise(sequence)):
        if position == LENGTH - 2:
            probability *= (token in task.triggers) / len(task.triggers)
        elif before in task.triggers:
            place = task.triggers.index(before)
            noises = range(task.noise_token, task.noise_token + task.noises)
            noises = [noises[place % task.noises]] if task.by_trigger else noises
            probability *= (1 - ALPHA) * (token == outputs[place]) + ALPHA * (token in noises) / len(noises)
        else:
            probability *= chain.transition[before, token]
    return probability


@pytest.mark.parametrize(
    "fields",
    [{"noise": "appended"}, {"noise": "existing"}, {"noises": 2},
     {"noises": 2, "by_trigger": True, "triggers": (2, 0)}],
)  # fmt: skip
@pytest.mark.parametrize("scored", ["last", "after_trigger"])
def test_it_is_the_law_given_all_that_stands_before(fields, scored):
    task = NoisyRecall(
        source="uniform", tokens=TOKENS, length=LENGTH, alpha=ALPHA, scored=scored, max_scored=0, **fields
    )
    states = task.chain.states
    joint = {
        sequence: np.mean([law(task, sequence, one) for one in product(range(TOKENS), repeat=len(task.triggers))])
        for sequence in product(range(states), repeat=LENGTH + 1)
    }
    assert sum(joint.values()) == pytest.approx(1)
    possible = sorted({sequence[:LENGTH] for sequence, each in joint.items() if each > 0})
    inputs = torch.tensor(possible)
    ideal = task.ideal(inputs)
    batch = task.sample("train", 400, seed=0)
    assert torch.allclose(ideal.sum(-1), torch.ones(()))
    following = np.zeros((len(possible), states))
    for row, inputs_ in enumerate(possible):
        following[row] = [joint[(*inputs_, token)] for token in range(states)]
    following /= following.sum(axis=1, keepdims=True)
    assert np.abs(ideal[:, -1].numpy() - following).max() < 1e-6
    if scored == "last":
        return
    index = {inputs_: row for row, inputs_ in enumerate(possible)}
    checked = 0
    for inputs_, positions, weights in zip(
        batch.inputs.tolist(), batch.positions.tolist(), batch.weights.tolist(), strict=True
    ):
        for column, (position, weight) in enumerate(zip(positions[:-1], weights[:-1], strict=True)):
            if weight:
                before = tuple(inputs_[: position + 1])
                told = [(sequence, each) for sequence, each in joint.items() if sequence[: position + 1] == before]
                expected = np.bincount(
                    [sequence[position + 1] for sequence, _ in told], [each for _, each in told], minlength=states
                )
                found = ideal[index[tuple(inputs_)], column].numpy()
                assert np.abs(found - expected / expected.sum()).max() < 1e-6
                checked += 1
    assert checked > 10


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"noises": 2}, {"noises": 2, "by_trigger": True, "triggers": (2, 0)}, {"drawn": 1},
        {"drawn": 2, "length": 6}, {"drawn": 3}, {"alpha": 0.0}, {"alpha": 1.0}, {"alpha": 1.0, "drawn": 2},
        {"alpha": 0.0, "noise": "existing", "triggers": (0, 1), "length": 6},
        {"alpha": 1.0, "noise": "existing", "triggers": (0, 1), "length": 6},
    ],
)  # fmt: skip
def test_what_follows_triggers_tells_possible_sequences_and_the_splits_apart(fields):
    """Each sequence is of `clean` if any triggers and y give it without noise, else of `train` if noise is possible."""
    task = NoisyRecall(**{"source": "uniform", "tokens": TOKENS, "length": 4, "alpha": ALPHA} | fields)
    characters, states = range(TOKENS), range(task.chain.states)
    noises = [task.noise_token + number for number in range(task.noises)]
    sides = {}
    for triggers in permutations(characters, task.drawn) if task.drawn else [task.triggers]:
        for outputs, alpha in product(product(characters, repeat=len(triggers)), {task.alpha, 0.0}):
            following = {token: [*characters] for token in states}
            for place, (trigger, output) in enumerate(zip(triggers, outputs, strict=True)):
                own = noises[place : place + 1] if task.by_trigger else noises
                following[trigger] = [output] * (alpha < 1) + own * (alpha > 0)
            paths = [[token] for token in characters]
            for _ in range(task.length - 2):
                paths = [[*path, token] for path in paths for token in following[path[-1]]]
            for path, last in product(paths, triggers):
                noisy = any(before in triggers and token in noises for before, token in pairwise(path))
                sides[*path, last] = max(sides.get((*path, last), 0), 0 if noisy else 1)
    every = list(product(states, repeat=task.length))
    assert task.split_of(torch.tensor(every)).tolist() == [sides.get(one, -1) for one in every]


def test_tokens_can_be_few_and_one_outside_the_vocabulary_has_no_law():
    task = NoisyRecall(source="uniform", tokens=4, length=10)
    assert task.shape.input_size == 5
    assert int(task.sample("train", 100, seed=0).inputs.max()) == 4
    task = NoisyRecall(source="uniform", tokens=TOKENS, length=LENGTH, alpha=ALPHA)
    inputs = task.sample("train", 2, 0).inputs
    inputs[1, 0] = task.shape.input_size
    with pytest.raises(SpecError, match=r"^inputs: hold a token outside the vocabulary; give tokens from 0 to 3$"):
        task.ideal(inputs)


# Noisy associative memory, against its law written out.
ONE = NoisyAssociative(inputs=3, alpha=0.25)
LAW = torch.tensor([[0.75, 0.0, 0.0, 0.25], [0.0, 0.75, 0.0, 0.25], [0.0, 0.0, 0.75, 0.25]])


def test_targets_are_the_law_of_each_input():
    for split, law in (("train", LAW), ("clean", torch.eye(3, 4))):
        batch = ONE.sample(split, 60, 0)
        assert torch.equal(batch.targets[:, 0], law[batch.inputs[:, 0]])
        assert torch.equal(batch.answers[:, 0], torch.eye(3, 4)[batch.inputs[:, 0]])
        assert batch.positions.tolist() == [0]
    always = NoisyAssociative(inputs=2, alpha=1.0).sample("train", 2, 0)
    assert always.targets[:, 0].tolist() == [[0.0, 0.0, 1.0]] * 2
    never = NoisyAssociative(inputs=2, alpha=0.0).sample("train", 2, 0)
    assert torch.equal(never.targets, never.answers)


def test_every_n_sequences_are_the_population():
    inputs = task("associative/noisy", inputs=5).sample("train", 5 * 40 + 3, 1).inputs[:, 0]
    rows = inputs[:200].reshape(40, 5)
    assert (rows.sort(dim=1).values == torch.arange(5)).all()
    assert len({tuple(row) for row in rows.tolist()}) > 20  # of 120 orders
    assert len(set(inputs[200:].tolist())) == 3


def test_loss_of_a_batch_is_the_loss_of_the_population():
    """(1 / n) sum over x and y of -p(y | x) log q(y | x), for predictions q by hand."""
    q = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.6, 0.1, 0.2], [0.25, 0.25, 0.25, 0.25]])
    expected = -sum(float(LAW[x, y]) * math.log(float(q[x, y])) for x in range(3) for y in range(4)) / 3
    batch = ONE.sample("train", 3, 7)
    losses = loss_per_position("cross_entropy", q.log()[batch.inputs], batch.targets)
    assert float(losses.mean()) == pytest.approx(expected, rel=1e-6)
    clean = ONE.sample("clean", 3, 7)
    losses = loss_per_position("cross_entropy", q.log()[clean.inputs], clean.targets)
    assert float(losses.mean()) == pytest.approx(-(math.log(0.5) + math.log(0.6) + math.log(0.25)) / 3, rel=1e-6)


def test_oracle_and_ideal_predictor():
    inputs = torch.tensor([[2], [0]])
    answer = ONE.oracle(inputs)
    assert answer.answers[:, 0].tolist() == [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    assert answer.known.tolist() == [[True], [True]]
    assert torch.equal(ONE.ideal(inputs)[:, 0], LAW[[2, 0]])
    batch = ONE.sample("train", 30, 0)
    assert torch.equal(ONE.ideal(batch.inputs), batch.targets)  # nothing else could have been drawn
    assert ONE.render(inputs)[0].trace == ("output 2 with probability 0.75, noise with probability 0.25",)


def test_metrics_of_memories_by_hand():
    batch = ONE.sample("train", 3, 0)
    q = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.2, 0.4], [0.25, 0.25, 0.3, 0.2]])
    found = ONE.metrics(q.log()[batch.inputs], batch)
    order = batch.inputs[:, 0].argsort()
    assert found["right"][order, 0].tolist() == pytest.approx([0.5, 0.3, 0.3])
    assert found["noise"][order, 0].tolist() == pytest.approx([0.1, 0.4, 0.2])
    assert found["accuracy"][order, 0].tolist() == [1.0, 0.0, 1.0]


def test_what_is_no_input_belongs_nowhere():
    assert ONE.split_of(torch.tensor([[0], [2], [3], [-1]])).tolist() == [0, 0, -1, -1]
    answer = ONE.oracle(torch.tensor([[2], [3], [-1]]))
    assert answer.known.tolist() == [[True], [False], [False]] and answer.answers[0, 0].tolist() == [0, 0, 1, 0]
    assert answer.trace[0].position.tolist() == [0, -1, -1]
    for ask in (ONE.ideal, ONE.render):
        with pytest.raises(SpecError, match=r"^inputs: .*not single tokens below n.*from 0 to 2"):
            ask(torch.tensor([[0], [3]]))
