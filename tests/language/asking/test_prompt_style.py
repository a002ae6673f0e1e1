"""How questions are put: as a chat, as text, and without premises."""

from anchorlab.language.asking import Manner, Request, Turn
from anchorlab.tasks import task

TASK = task("retrieval/equations", chains=2, steps=2, order="sorted")
QUESTION = TASK.questions(1, seed=0)[0]
WORKED = TASK.questions(3, seed=0, split="train")


def test_a_question_as_a_chat():
    request = Manner().request(QUESTION)
    assert request == Request((Turn("user", QUESTION.prompt),), chat=True)
    assert QUESTION.instruction in request.turns[0].text


def test_a_question_as_text_after_worked_examples():
    manner = Manner(chat=False, begun=True, instruction=False, examples=2, tokens=5)
    request = manner.request(QUESTION, WORKED, temperature=0.5, seed=3)
    first, second = WORKED[:2]
    assert request.text == (
        f"{first.text}\n{first.begun} {first.answer}\n\n"
        f"{second.text}\n{second.begun} {second.answer}\n\n"
        f"{QUESTION.text}\n{QUESTION.begun}"
    )
    assert (request.temperature, request.seed, request.tokens, request.stop) == (0.5, 3, 5, "\n")


def test_without_premises_only_the_question_is_left():
    manner = Manner(chat=False, begun=True, instruction=False, examples=1)
    asked = manner.without_premises(QUESTION, WORKED)
    last = QUESTION.text.split("\n")[-1]
    assert asked.turns[-1].text == last and last.startswith("What is the value of")
    assert asked.turns[:-1] == manner.request(QUESTION, WORKED).turns[:-1]
    assert asked.begun == QUESTION.begun and asked.stop == "\n"
