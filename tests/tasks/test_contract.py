"""What every task owes to the layers above, checked on every registered task and on variants."""

import json
from itertools import combinations

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import Batch, Task, example_data, parse_task, task
from tests.tasks.examples import TASKS

N = 300

every_task = pytest.mark.parametrize("one", TASKS.values(), ids=TASKS.keys())
every_split = pytest.mark.parametrize(("one", "side"), [(t, i) for t in TASKS.values() for i in range(len(t.splits))],
                                      ids=[f"{n}-{split}" for n, t in TASKS.items() for split in t.splits])  # fmt: skip


def same(one: Batch, other: Batch) -> bool:
    names = ("inputs", "targets", "answers", "positions")
    fields = all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
    return fields and all(torch.equal(value, other.latents[name]) for name, value in one.latents.items())


@every_split
def test_one_seed_gives_the_same_bytes_and_another_seed_others(one: Task, side: int) -> None:
    split = one.splits[side]
    batch = one.sample(split, N, seed=5)
    assert same(batch, parse_task(one.model_dump(mode="json")).sample(split, N, seed=5))
    assert not torch.equal(batch.inputs, one.sample(split, N, seed=6).inputs)


@every_task
def test_splits_draw_from_streams_of_their_own(one: Task) -> None:
    drawn = [one.sample(split, N, 0).inputs for split in one.splits]
    assert all(not torch.equal(first, second) for first, second in combinations(drawn, 2))


@every_split
def test_batch_fits_the_shape(one: Task, side: int) -> None:
    batch, shape = one.sample(one.splits[side], N, 1), one.shape
    assert len(batch) == N
    if shape.inputs == "tokens":
        assert batch.inputs.shape == (N, shape.length) and batch.inputs.dtype == torch.int64
        assert int(batch.inputs.min()) >= 0 and int(batch.inputs.max()) < shape.input_size
    else:
        assert batch.inputs.shape == (N, shape.length, shape.input_size) and batch.inputs.dtype == torch.float32
    scored = batch.positions.shape[-1]
    assert batch.positions.shape in {(scored,), (N, scored)}
    assert int(batch.positions.min()) >= 0 and int(batch.positions.max()) < shape.length
    outputs = () if batch.targets.dtype == torch.int64 else (shape.output_size,)
    assert batch.targets.shape == batch.answers.shape == (N, scored, *outputs)
    if not outputs:
        assert int(batch.targets.min()) >= 0 and int(batch.targets.max()) < shape.output_size
    if batch.weights is not None:
        assert batch.weights.shape == (N, scored) and set(batch.weights.unique().tolist()) <= {0.0, 1.0}
    if batch.group is not None:
        assert batch.group.shape == (N,) and int(batch.group.max()) < len(batch.groups)
    assert all(value.shape[0] == N for value in batch.latents.values())
    assert all(value.shape == (N, scored) for value in batch.rivals.values())


@every_task
def test_scored_width_is_the_same_for_every_batch(one: Task) -> None:
    shapes = {
        one.sample(split, n, seed).targets.shape[1:] for split in one.splits for n, seed in ((0, 0), (1, 1), (N, 2))
    }
    assert len(shapes) == 1


@every_split
def test_oracle_agrees_where_it_knows(one: Task, side: int) -> None:
    batch = one.sample(one.splits[side], N, 2)
    answer = one.oracle(batch.inputs)
    assert answer.answers.shape == batch.answers.shape
    assert answer.known.shape == batch.answers.shape[:2] and answer.known.dtype == torch.bool
    counted = answer.known if batch.weights is None else answer.known & (batch.weights > 0)
    if not counted.any():  # noise hides every answer, but not what is best to say
        assert one.ideal(batch.inputs).isfinite().all()
    if one.family == "linear-regression":  # its oracle solves equations
        assert torch.allclose(answer.answers[counted], batch.answers[counted], rtol=0, atol=1e-4)
    else:
        assert torch.equal(answer.answers[counted], batch.answers[counted])
    if one.separated:
        assert answer.known.all()
    for step in answer.trace:
        assert step.position.shape == (N,) and step.value.shape[0] == N
        assert int(step.position.min()) >= -1 and int(step.position.max()) < one.shape.length


@every_task
def test_what_is_outside_the_vocabulary_spoils_its_own_sequence_alone(one: Task) -> None:
    """Each sequence is judged by itself; of one with a strange token an answer is known at most from the other ones."""
    batch, spoilt, tokens = one.sample(one.splits[0], 12, 7), 3, one.shape.inputs == "tokens"
    others, alone = torch.arange(12) != spoilt, one.oracle(batch.inputs)
    sides = one.split_of(batch.inputs)
    size = one.shape.input_size
    for strange in (-1, size, size + 100, 2**40, -(2**40)) if tokens else (float("nan"), float("inf")):
        for place in {0, one.shape.length // 2, one.shape.length - 1}:
            inputs = batch.inputs.clone()
            inputs[spoilt, place] = strange
            answer = one.oracle(inputs)
            assert torch.equal(answer.known[others], alone.known[others])
            assert torch.equal(answer.answers[others], alone.answers[others])
            assert torch.equal(one.split_of(inputs)[others], sides[others])
            for step, whole in zip(answer.trace, alone.trace, strict=True):
                assert torch.equal(step.position[others], whole.position[others])
                assert torch.equal(step.value[others], whole.value[others])
            if not answer.answers.is_floating_point():
                known = answer.answers[spoilt][answer.known[spoilt]]
                assert ((known >= 0) & (known < one.shape.output_size)).all()


@every_split
def test_samples_are_of_the_split_asked_for(one: Task, side: int) -> None:
    """A loader of the paper's code builds its training list from the test groups."""
    batch = one.sample(one.splits[side], 3000, 3)
    assert batch.split == one.splits[side]
    sides = one.split_of(batch.inputs)
    assert (sides >= 0).all()
    if one.separated:
        assert (sides == side).all()


@every_task
def test_round_trip_through_json_is_exact(one: Task) -> None:
    text = json.dumps(one.model_dump(mode="json"), sort_keys=True)
    again = parse_task(json.loads(text))
    assert again == one and type(again) is type(one)
    assert json.dumps(again.model_dump(mode="json"), sort_keys=True) == text


@every_task
def test_loss_and_metrics_are_finite_and_perfect_outputs_score_perfectly(one: Task) -> None:
    batch = one.sample(one.splits[0], N, 4)
    scored = batch.positions.shape[-1]
    outputs = torch.randn(N, scored, one.shape.output_size, generator=torch.Generator().manual_seed(0))
    loss = one.losses(outputs, batch.targets)
    assert loss.shape == (N, scored) and loss.isfinite().all()
    metrics = one.metrics(outputs, batch)
    assert metrics
    for value in metrics.values():
        assert value.shape == (N, scored) and value.isfinite().all()
    if one.loss == "mean_squared_error":
        assert all(value.abs().max() == 0 for value in one.metrics(batch.answers, batch).values())
    else:
        soft = batch.answers.is_floating_point()
        one_hot = batch.answers if soft else torch.nn.functional.one_hot(batch.answers, one.shape.output_size).float()
        outputs = 50.0 * one_hot
        assert (one.metrics(outputs, batch)["accuracy"] == 1).all()


@every_task
def test_render_shows_the_answer_and_a_notebook_examples_of_every_split(one: Task) -> None:
    batch = one.sample(one.splits[-1], 4, 0)
    examples = one.render(batch.inputs)
    assert len(examples) == 4
    for example in examples:
        assert len(example.tokens) == one.shape.length
        assert example.answer and example.trace and all(token.text for token in example.tokens)
        assert example.split in one.splits
        json.dumps(example_data(example))
    shown = one._repr_html_()
    assert shown.count('class="trace"') == 2 * len(one.splits)
    assert len(shown) < 24_000


@every_task
def test_one_sequence_in_place_of_a_batch_is_refused(one: Task) -> None:
    batch = one.sample(one.splits[0], 2, 0)
    for name in ("oracle", "split_of", "ideal", "render"):
        if getattr(type(one), name) is not getattr(Task, name):
            with pytest.raises(SpecError) as refused:
                getattr(one, name)(batch.inputs[0])
            said = "inputs: are one sequence without a batch axis; give a batch of one, inputs[None]"
            assert str(refused.value) == said
    assert len(one.oracle(batch.inputs[:1]).answers) == 1


@every_task
def test_sequences_of_another_length_are_refused_and_belong_to_no_split(one: Task) -> None:
    inputs, length = one.sample(one.splits[0], 2, 0).inputs, one.shape.length
    feature = "" if one.shape.inputs == "tokens" else f", {one.shape.input_size}"
    for other in {0, 1, length + 1} - {length}:
        wrong = torch.cat([inputs, inputs[:, :1]], dim=1)[:, :other]
        for name in ("oracle", "ideal", "render"):
            if getattr(type(one), name) is not Task.ideal:
                with pytest.raises(SpecError) as refused:
                    getattr(one, name)(wrong)
                said = f"inputs: have shape (2, {other}{feature}); give [batch, {length}{feature}]"
                assert str(refused.value) == said
        assert one.split_of(wrong).tolist() == [-1, -1]


@pytest.mark.untyped
@every_task
def test_bad_draws_are_refused(one: Task) -> None:
    with pytest.raises(SpecError, match="split"):
        one.sample("nowhere", 1, 0)
    for n in (-1, 2.5):
        with pytest.raises(SpecError, match=f"n: cannot draw {n!r} sequences; ask for a whole number"):
            one.sample(one.splits[0], n, 0)
    for seed in (2.5, "1", None):
        with pytest.raises(SpecError, match=f"seed: {seed!r} is not a seed; give a whole number"):
            one.sample(one.splits[0], 1, seed)
    with pytest.raises(SpecError, match="n: 10,000,000,000,000 sequences take more than"):
        one.sample(one.splits[0], 10**13, 0)


@every_task
def test_a_batch_beyond_the_memory_is_refused_before_it_is_drawn(one, monkeypatch):
    """The inputs of 200,000 sequences fit exactly, so that their targets do not, unless these are the inputs."""
    number = 8 if one.shape.inputs == "tokens" else 4 * one.shape.input_size
    pages = -(-200_000 * one.shape.length * number // 4096)
    pages -= one.family == "superposition"
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": pages}[name])
    with pytest.raises(SpecError, match=r"^n: 200,000 sequences take more than the .* draw fewer at a time$"):
        one.sample(one.splits[0], 200_000, 0)


@every_task
def test_proof_is_told_in_words_and_numbers(one: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(one), "proof_samples", one.proof_samples // 50)
    proof = one.proof()
    assert proof.holds and proof.words and all(line.endswith(".") for line in proof.words)
    json.dumps(proof.numbers)


def test_splits_that_share_sequences_have_a_proof_at_once() -> None:
    one = task("recall/noisy")
    assert not one.separated and one.proof().numbers["samples"] == 1000
