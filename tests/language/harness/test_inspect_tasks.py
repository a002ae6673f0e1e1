"""Inspect asks as `ask` does: on SmolLM2, on scripted replies, and on its command line."""

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from anchorlab.language.asking import Manner, ask, results
from anchorlab.tasks import task

click = pytest.importorskip("click")
inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.log import EvalLog, read_eval_log  # noqa: E402
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model  # noqa: E402

from anchorlab.language.harness.inspect_tasks import continued  # noqa: E402

pytestmark = pytest.mark.untyped  # Inspect finds no tasks in functions that are wrapped

COMMAND = str(Path(sys.executable).with_name("inspect"))


def evaluated(name: str, model: Any, folder: Path, **arguments: Any) -> EvalLog:
    (log,) = inspect_ai.eval(
        f"anchorlab/{name}", model=model, task_args=arguments, log_dir=str(folder), display="none", score_display=False
    )
    assert log.status == "success", log.error
    return log


def metrics(log: EvalLog) -> dict[str, float]:
    assert log.results is not None
    return {name: found.value for name, found in log.results.scores[0].metrics.items()}


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "template", "manner"),
    [
        pytest.param("retrieval_equations", lambda own: own, Manner(examples=1, tokens=4), marks=pytest.mark.nightly),
        ("retrieval_lives_with", continued, Manner(begun=True)),
        pytest.param(
            "retrieval_equations",
            lambda _: "<|endoftext|>{{ messages[0].content }}",
            Manner(chat=False, begun=True, instruction=False, examples=2),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["chat", "begun", "plain"],
)
def test_it_hears_and_scores_what_we_do(tmp_path, smollm2, smollm2_tokenizer, speaker, name, template, manner):
    chat_template = template(smollm2_tokenizer.chat_template)
    model = get_model("hf/smollm2", model_path=str(smollm2), do_sample=False, chat_template=chat_template)
    log = evaluated(name, model, tmp_path, n=12, steps=2, seed=1, **manner.model_dump())
    own = task(name.replace("_", "/", 1).replace("_", "-"), steps=2)
    questions = own.questions(12, seed=1)
    asked = ask(speaker, questions, manner, own.questions(manner.examples, seed=1, split="train"))
    assert [one.target for one in log.samples] == [one.answer for one in questions]
    found = [one.scores["first_acceptable"] for one in log.samples]
    assert [one.answer for one in found] == [one.answer for one in asked]
    assert [one.explanation.split("\n")[0] for one in found] == [one.replies[0].text for one in asked]
    ours = results(asked)
    assert metrics(log) == {
        "accuracy": pytest.approx(ours.accepted.share),
        "stderr": pytest.approx((ours.accepted.share * (1 - ours.accepted.share) / 11) ** 0.5),
        "guessing": 0.25, "first": pytest.approx(ours.first.share), "favourite": pytest.approx(ours.favourite),
        "refused": pytest.approx(ours.refused), "other": pytest.approx(ours.other), "tries": 1,
    }  # fmt: skip
    assert 0 < ours.accepted.share < 1


class Script:
    """Gives replies of its own to each question, one after the other, and keeps how it was asked."""

    def __init__(self, replies: dict[str, list[ModelOutput]]) -> None:
        self.replies = {prompt: list(own) for prompt, own in replies.items()}
        self.asked: list[tuple[str, GenerateConfig, int]] = []

    def __call__(self, messages: Any, tools: Any, choice: Any, config: GenerateConfig) -> ModelOutput:
        prompt = messages[0].text
        self.asked.append((prompt, config, len(messages)))
        return self.replies[prompt].pop(0)


def says(text: str, reason: Any = "stop") -> ModelOutput:
    """A reply, with the number of tokens, which the scripted model would otherwise count by a list from the network."""
    made = ModelOutput.from_content("mockllm", text, stop_reason=reason)
    made.usage = ModelUsage()
    return made


@pytest.mark.slow
def test_questions_are_asked_until_an_answer_is_acceptable(tmp_path):
    questions = task("retrieval/equations", chains=2).questions(4, seed=3)
    prompts = [one.prompt for one in questions]
    right = [one.answer for one in questions]
    wrong = [next(word for word in one.candidates if word != one.answer) for one in questions]
    script = Script(
        {
            prompts[0]: [says(right[0])],
            prompts[1]: [says("hm"), says("no", "content_filter"), says(f"**{right[1]}**.")],
            prompts[2]: [says(wrong[2])],
            prompts[3]: [says("hm"), says("I'm sorry"), says("hm")],
        }
    )
    model = get_model("mockllm/model", custom_outputs=script)
    log = evaluated("retrieval_equations", model, tmp_path, n=4, seed=3, chains=2, tries=3, tokens=7)
    scores = [one.scores["first_acceptable"] for one in log.samples]
    assert [one.value for one in scores] == ["C", "C", "I", "I"]
    assert [one.answer for one in scores] == [right[0], right[1], wrong[2], None]
    given = [right[0], right[1], wrong[2]]
    assert metrics(log) == {
        "accuracy": 0.5, "stderr": pytest.approx((0.25 / 3) ** 0.5), "guessing": 0.5, "first": 0.25,
        "favourite": pytest.approx(max(map(given.count, given)) / 3),
        "refused": 2 / 8, "other": 3 / 8, "tries": 2,
    }  # fmt: skip
    assert {(config.max_tokens, messages) for _, config, messages in script.asked} == {(7, 1)}
    times = {prompt: [config for asked, config, _ in script.asked if asked == prompt] for prompt in prompts}
    assert [[one.temperature for one in times[prompt]] for prompt in prompts] == [[0], [0, 1, 1], [0], [0, 1, 1]]
    seeds = [one.seed for prompt in prompts for one in times[prompt][1:]]
    assert None not in seeds and len(set(seeds)) == 4


def test_a_sample_is_a_question_as_put_by_its_manner(tmp_path):
    own = task("retrieval/kingdoms", chains=3, steps=3, order="sorted", distractors=1, asked_steps=(2,))
    question, worked = own.questions(2, seed=5)[1], own.questions(1, seed=5, split="train")[0]
    arguments = {"n": 2, "seed": 5, "chains": 3, "steps": 3, "order": "sorted", "distractors": 1, "asked_steps": 2}
    model = get_model("mockllm/model", custom_outputs=lambda *_: says(question.answer))
    log = evaluated("retrieval_kingdoms", model, tmp_path, examples=1, begun=True, **arguments)
    sample = log.samples[1]
    assert [(message.role, message.text) for message in sample.input] == [
        ("user", worked.prompt), ("assistant", f"{worked.begun} {worked.answer}"), ("user", question.prompt),
        ("assistant", question.begun),
    ]  # fmt: skip
    assert (sample.id, sample.target) == (2, question.answer)
    assert {**sample.metadata} == {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(question).items()
    }
    log = evaluated("retrieval_kingdoms", model, tmp_path, chat=False, instruction=False, **arguments)
    assert [(message.role, message.text) for message in log.samples[1].input] == [("user", f"{question.text}\n")]
    assert log.plan.config.stop_seqs == ["\n"]


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`inspect eval` as a user calls it."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    options = ["--display", "plain", "--log-dir", str(folder)]
    return subprocess.run(
        [COMMAND, "eval", *words, *options], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_line_finds_the_tasks(tmp_path, smollm2):
    model = ("--model", "hf/smollm2", "-M", f"model_path={smollm2}", "-M", "do_sample=false")
    done = command(tmp_path, "anchorlab/retrieval_relatives", *model, "-T", "n=3", "-T", "asked_steps=1,4")
    assert done.returncode == 0, done.stdout + done.stderr
    log = read_eval_log(str(next(tmp_path.glob("*.eval"))))
    own = task("retrieval/relatives", asked_steps=(1, 4))
    assert [one.input[0].text for one in log.samples] == [one.prompt for one in own.questions(3)]
    assert metrics(log)["guessing"] == pytest.approx(own.questions(1)[0].chance)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"steps": 0}, "^steps: "), ({"order": "x"}, "^order: input should be 'paper', .* got 'x'$"),
        ({"chains": 65}, "^chains: "), ({"n": 0}, "^n: is 0; ask at least once"), ({"tries": 0}, "^tries: is 0"),
        ({"examples": 99}, "^examples: "),
    ],
)  # fmt: skip
def test_wrong_arguments(tmp_path, wrong, told):
    with pytest.raises(click.UsageError, match=told):
        evaluated("retrieval_equations", get_model("mockllm/model"), tmp_path, **wrong)
    assert not list(tmp_path.iterdir())
