"""Equations as vectors: what the text says is what the vectors say."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.papers.retrieval.known_depth.transcription import Transcribed, transcribe
from anchorlab.tasks import task

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
    for text, word, answer in zip(questions.texts(batch.inputs), words, found.answer.tolist(), strict=True):
        assert text.splitlines()[answer].endswith(f" = {word}")
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


def test_words_are_drawn_anew_in_every_question_and_by_seed():
    questions, into = both(1)
    batch = questions.sample("test", 2, seed=0)
    first, again = transcribe(questions, batch, into), transcribe(questions, batch, into)
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, transcribe(questions, batch, into, seed=1).inputs)
    flat = first.inputs[:, :, :FEATURES].flatten(0, 1)
    assert len(flat.unique(dim=0)) == 2 * 6


def test_queries_come_in_every_order():
    questions, into = both(2)
    batch = questions.sample("test", 300, seed=0)
    assert transcribe(questions, batch, into).asked.bincount().tolist() == pytest.approx([100] * 3, abs=35)


def test_the_nearest_end_is_the_answer():
    ends = torch.tensor([[[0.0, 0.0], [4.0, 0.0]]] * 3)
    asked, answer = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1])
    one = Transcribed(torch.zeros(3, 1, 1), asked, ends, answer)
    outputs = torch.zeros(2, 3, 2, 6)
    outputs[..., :4] = 9.0  # of other symbols
    outputs[0, :, :, -2] = torch.tensor([[1.9, 2.1], [1.9, 2.1], [2.1, 1.9]])
    assert one.right(outputs).tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize(
    "name, options",
    [
        ("lives-with", {}),
        ("equations", {"order": "shuffled"}),
        ("equations", {"order": "sorted"}),
        ("equations", {"chains": 4}),
        ("equations", {"steps": 3}),
        ("equations", {"distractors": 1}),
        ("equations", {"asked_steps": (1, 2)}),
    ],
)
def test_questions_of_another_form_are_refused(name, options):
    questions = task(f"retrieval/{name}", **{"chains": 3, "steps": 2, **options})
    with pytest.raises(SpecError, match="questions"):
        transcribe(questions, questions.sample("test", 2, seed=0), both(2)[1])
