"""Answers of models of known depth, made by hand, and equations as vectors: what the text says the vectors say."""

import pytest
import torch
from torch import tensor

from anchorlab.papers.retrieval import known_depth
from anchorlab.papers.retrieval.known_depth import STUDY, Seen, Setting, Transcribed, answer, experiments, transcribe
from anchorlab.papers.retrieval.settings import quick
from anchorlab.tasks import task
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of

# models of 1, 2 and 6 layers, two of each, on 1 to 4 steps
ACCURACY = tensor(
    [
        [[0.25, 0.25], [0.24, 0.26], [0.25, 0.25], [0.2, 0.3]],
        [[1.0, 0.8], [0.95, 0.1], [0.2, 0.2], [0.25, 0.25]],
        [[1.0, 1.0], [0.99, 1.0], [0.95, 0.9], [0.9, 0.91]],
    ]
)


def seen(accuracy=ACCURACY):
    setting = Setting((1, 2, 6), (1, 2, 3, 4), quick(1, 1, 200, seeds=2))
    return seen_by_hand(Seen, setting=setting, accuracy=accuracy)


def test_values_inside_the_bands():
    assert values_of(STUDY, seen()) == {"more-layers-further": 4.0}


@pytest.mark.slow
def test_steps_behind_a_gap_and_depths_where_nothing_is_answered_make_no_difference():
    accuracy = ACCURACY.clone()
    accuracy[2, 2] = 0.85  # six layers have a gap at three
    found = seen(accuracy)
    assert values_of(STUDY, found) == {"more-layers-further": 2.0}
    nothing = seen(torch.full_like(ACCURACY, 0.25))
    assert values_of(STUDY, nothing) == {"more-layers-further": 0.0}


@pytest.mark.slow
def test_a_seed_is_one_unit_of_all_depths_and_steps():
    found = results_of(STUDY, seen())
    assert found["more-layers-further"].units == (4.0, 4.0)
    accuracy = ACCURACY.clone()
    accuracy[2, 3, 0], accuracy[2, 3, 1] = 0.5, 1.0  # the first of six layers does not answer four steps
    found = results_of(STUDY, seen(accuracy))
    assert found["more-layers-further"].value == 3.0  # on average four steps are not answered
    assert found["more-layers-further"].units == (3.0, 4.0)


class Oracle:
    """In place of `look`: predicts what following the vectors gives, for the first member alone."""

    def __init__(self, task):
        self.task = task

    def __call__(self, ensemble, inputs, positions):
        assert positions.tolist() == self.task.sample("test", 1, seed=0).positions.tolist()
        right = self.task.oracle(inputs).answers
        return {"output": torch.stack([right, torch.zeros_like(right)])}


def test_a_model_that_follows_the_chain_is_right_and_one_that_says_zero_guesses(monkeypatch):
    experiment = quick(3, 1, 200, seeds=2)
    monkeypatch.setattr(known_depth, "look", Oracle(experiment.task))
    follows, says_zero = answer(HandMadeRun(experiment, (200,), {}, {200: None}), n=2000).tolist()
    assert follows == 1.0
    assert says_zero == pytest.approx(0.25, abs=0.04)


def test_answers_by_depth_and_steps(monkeypatch):
    setting = Setting((2, 5), (1, 3, 8), quick(1, 1, 200, seeds=2))
    runs = [HandMadeRun(one, (0,), {}) for one in experiments(setting).values()]
    given = {id(run): tensor([0.1 * at, 0.1 * at + 0.05]) for at, run in enumerate(runs)}
    monkeypatch.setattr(known_depth, "answer", lambda run: given[id(run)])
    seen = STUDY.see(runs, setting)
    torch.testing.assert_close(seen.accuracy[1, 0], tensor([0.3, 0.35]))
    assert seen.least == [2, 3, 5]
    found = STUDY.analysis(runs, setting)
    assert [(one.label, one.x) for one in found.figures[0].lines] == [("2 layers", (1, 3, 8)), ("5 layers", (1, 3, 8))]
    assert found.figures[0].lines[1].mean == pytest.approx((0.325, 0.425, 0.525))
    assert found.tables[0].columns == ("steps", "least layers", "2 layers", "5 layers")
    assert found.tables[0].rows[2] == (8, 5, pytest.approx(0.225), pytest.approx(0.525))


FEATURES = 8


def both(steps: int, **options):
    return (
        task("retrieval/equations", chains=3, steps=steps, **options),
        task("retrieval/minimal", chains=3, steps=steps, features=FEATURES),
    )


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("order", ["paper", "steps"])
def test_following_the_vectors_gives_the_answer_of_the_text(steps, order):
    questions, into = both(steps, order=order)
    batch = questions.sample("test", 40, seed=3)
    found = transcribe(questions, batch, into)
    assert found.inputs.shape == (40, into.shape.length, 2 * FEATURES)
    followed = into.oracle(found.inputs)
    assert bool(followed.known.all())
    end = followed.answers[torch.arange(40), found.asked, -FEATURES:]
    words = questions.texts(questions.oracle(batch.inputs).answers)  # from the text alone
    for text, word, place in zip(questions.texts(batch.inputs), words, found.answer.tolist(), strict=True):
        assert text.splitlines()[place].endswith(f" = {word}")
    torch.testing.assert_close(found.ends[torch.arange(40), found.answer], end)
    assert bool(found.right(followed.answers).all())


def test_one_question_word_by_word():
    questions, into = both(2)
    batch = questions.sample("test", 1, seed=0)
    found = transcribe(questions, batch, into)
    *lines, asked = questions.texts(batch.inputs)[0].splitlines()
    vectors = found.inputs[0, :, :FEATURES]
    seen: dict[str, torch.Tensor] = {}
    for place, word in enumerate(word for line in lines for word in line.split(" = ")):
        torch.testing.assert_close(vectors[place], seen.setdefault(word, vectors[place]))
    assert len({tuple(one.tolist()) for one in seen.values()}) == 9  # three ends and six names, all different
    torch.testing.assert_close(vectors[12 + int(found.asked[0])], seen[asked.split()[-1].rstrip("?")])
    torch.testing.assert_close(found.inputs[0, :, FEATURES:], torch.from_numpy(into.position_vectors))


def test_words_are_drawn_anew_in_every_question_and_queries_come_in_every_order():
    questions, into = both(1)
    batch = questions.sample("test", 2, seed=0)
    first, again = transcribe(questions, batch, into), transcribe(questions, batch, into)
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, transcribe(questions, batch, into, seed=1).inputs)
    flat = first.inputs[:, :, :FEATURES].flatten(0, 1)
    assert len(flat.unique(dim=0)) == 2 * 6
    questions, into = both(2)
    batch = questions.sample("test", 300, seed=0)
    assert transcribe(questions, batch, into).asked.bincount().tolist() == pytest.approx([100] * 3, abs=35)
    ends = torch.tensor([[[0.0, 0.0], [4.0, 0.0]]] * 3)
    asked, answer = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1])
    one = Transcribed(torch.zeros(3, 1, 1), asked, ends, answer)
    outputs = torch.zeros(2, 3, 2, 6)
    outputs[..., :4] = 9.0  # of other symbols
    outputs[0, :, :, -2] = torch.tensor([[1.9, 2.1], [1.9, 2.1], [2.1, 1.9]])
    assert one.right(outputs).tolist() == [[True, True, False], [True, False, False]]
