"""lm-evaluation-harness runs an exported folder on SmolLM2, with our log-likelihoods, texts and scores."""

from pathlib import Path
from typing import Any

import pytest
import torch

from anchorlab.language.asking import Manner, ask, likelihoods, results
from anchorlab.tasks import export, task

lm_eval = pytest.importorskip("lm_eval")

N = 12
TASK = task("retrieval/lives-with", steps=2)  # its cities differ in length
QUESTIONS, WORKED = TASK.questions(N), TASK.questions(N, split="train")
# SmolLM2 is trained with this token before a text, and we read it there; the harness has to be told
START = {"system_instruction": "<|endoftext|>"}
CHAT = ("chat", Manner(begun=True), {"apply_chat_template": True})
PLAIN = ("plain", Manner(chat=False, begun=True, instruction=False), START)
AFTER_TWO = ("plain", PLAIN[1].replace(examples=2), START | {"num_fewshot": 2})


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Any:
    """The harness's own model, opened from the folder as `--model hf` does."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(smollm2), device="cpu", batch_size=1)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from lm_eval.tasks import TaskManager

    folder = export(TASK, tmp_path_factory.mktemp("folder") / "out", "lm-eval", n=N)
    return TaskManager(include_path=str(folder), include_defaults=False)


def run(model: Any, tasks: Any, name: str, options: dict[str, Any]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The metrics, and what was found for each question."""
    found = lm_eval.simple_evaluate(
        model=model, tasks=[name], task_manager=tasks, log_samples=True, bootstrap_iters=100, **options
    )
    samples = sorted(found["samples"][name], key=lambda one: one["doc_id"])
    assert [one["doc"]["question"] for one in samples] == [one.text for one in QUESTIONS]
    return found["results"][name], samples


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("end", "manner", "options"), [CHAT, pytest.param(*AFTER_TWO, marks=pytest.mark.nightly)], ids=["chat", "after two"]
)
def test_it_finds_our_likelihoods(model, tasks, speaker, end, manner, options):
    scores, samples = run(model, tasks, f"retrieval_lives_with_{end}", options)
    ours = likelihoods(
        speaker,
        [manner.request(one, WORKED) for one in QUESTIONS],
        [one.candidates for one in QUESTIONS],
        [manner.without_premises(one, WORKED) for one in QUESTIONS],
    )
    theirs = torch.tensor([[found[0] for found in one["filtered_resps"]] for one in samples])
    torch.testing.assert_close(theirs, ours.total, atol=1e-3, rtol=0)
    right = torch.tensor([one.candidates.index(one.answer) for one in QUESTIONS])
    letters = torch.tensor([[len(word) for word in one.candidates] for one in QUESTIONS])
    for metric, chosen in (("acc", ours.choose("sum")), ("acc_norm", (ours.total / letters).argmax(1))):
        assert [one[metric] for one in samples] == (chosen == right).float().tolist()
        assert scores[f"{metric},none"] == pytest.approx((chosen == right).float().mean().item())
        assert scores[f"{metric}_stderr,none"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("end", "manner", "options"), [pytest.param(*CHAT, marks=pytest.mark.nightly), PLAIN], ids=["chat", "plain"]
)
def test_it_generates_our_texts(model, tasks, speaker, end, manner, options):
    scores, samples = run(model, tasks, f"retrieval_lives_with_{end}_generated", options)
    asked = ask(speaker, QUESTIONS, manner, WORKED)
    assert [one["filtered_resps"][0] for one in samples] == [one.replies[0].text for one in asked]
    assert [one["acc"] for one in samples] == [float(one.right) for one in asked]
    ours = results(asked)
    assert scores["acc,none"] == pytest.approx(ours.first.share)
    assert scores["acceptable,none"] == pytest.approx(1 - ours.refused - ours.other)
    assert 0 < scores["acc,none"] < 1
