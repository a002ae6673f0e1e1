"""Export for lm-evaluation-harness: questions in words, and task files that tell how to present and score them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING

from anchorlab.errors import SpecError
from anchorlab.tasks.retrieval.prompts import RetrievalPrompts
from anchorlab.tasks.task import Task

if TYPE_CHECKING:
    import polars

LM_EVAL = "lm-eval"
"""The name of the format."""

_WORKED, _ASKED = "train", "test"
_LOADER = "questions.py"
_LOAD = '''"""The questions in this folder, for lm-evaluation-harness."""

import json
from pathlib import Path

import datasets

FILES = {files}


def load(**_):
    """Return the questions of each split."""
    texts = {{split: Path(__file__).with_name(name).read_text("utf-8") for split, name in FILES.items()}}
    rows = {{split: [json.loads(line) for line in text.splitlines()] for split, text in texts.items()}}
    return {{split: datasets.Dataset.from_list(own) for split, own in rows.items()}}
'''
_TASK = """# {manner} {scoring}
task: {name}
custom_dataset: !function questions.load
{splits}gen_prefix: begun
doc_to_target: answer
{fields}metadata:
  version: 1
"""
_EXAMPLES = f"""fewshot_split: {_WORKED}
fewshot_config:
  sampler: first_n
"""
_LIKELIHOOD = """output_type: multiple_choice
doc_to_choice: candidates
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
_GENERATED = """output_type: generate_until
process_results: !function anchorlab.language.harness.lm_eval.read_answer
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acceptable, aggregation: mean, higher_is_better: true}
generation_kwargs:
  do_sample: false
  max_gen_toks: 16
"""
_MANNERS = {
    "chat": ("The question as a chat, with the paper's instruction.", "doc_to_text: prompt\n", "  until: []\n"),
    "plain": (
        "The question as a text to be continued.",
        'doc_to_text: "{{question}}\\n"\n',
        '  until: ["\\n"]\n',
    ),
}
_SCORINGS = {
    "": "The likeliest candidate is the answer.",
    "_generated": "The generated text is the answer, as anchorlab reads it.",
}


def check_questions(task: Task, text: bool) -> None:
    """Raise `SpecError` for a task without questions in words, and for `text`."""
    if not isinstance(task, RetrievalPrompts):
        problem = f"{LM_EVAL} takes questions in words, which {task.name or task.family} does not have"
        raise SpecError("format", problem, "export retrieval/equations or the like, or choose another format")
    if text:
        raise SpecError("text", f"has no meaning in the format {LM_EVAL}, which is text already", "leave it out")


def question_frame(task: RetrievalPrompts, split: str, n: int, seed: int) -> "polars.DataFrame":
    """Return `task.questions(n, seed, split)` as a table with the columns that the data card explains."""
    import polars as pl

    rows = []
    for one in task.questions(n, seed, split):
        fields = asdict(one)
        del fields["instruction"]
        rows.append({"prompt": one.prompt, "question": fields.pop("text"), **fields, "group": f"step {one.depth}"})
    return pl.DataFrame(rows).with_columns(split=pl.lit(split))


def harness_files(task: Task, files: Mapping[str, str]) -> dict[str, str]:
    """Return the additional files of the folder, by name, as text; `files` gives the file name of each split."""
    splits = f"test_split: {_ASKED if _ASKED in files else _WORKED}\n" + _EXAMPLES * (set(files) == {_WORKED, _ASKED})
    made = {_LOADER: _LOAD.format(files=json.dumps(dict(files)))}
    for manner, scoring in product(_MANNERS, _SCORINGS):
        name = f"{harness_name(task)}_{manner}{scoring}"
        meaning, text, until = _MANNERS[manner]
        fields = text + (_GENERATED + until if scoring else _LIKELIHOOD)
        made[f"{name}.yaml"] = _TASK.format(
            manner=meaning, scoring=_SCORINGS[scoring], name=name, splits=splits, fields=fields
        )
    return made


def how_to_run(task: Task) -> Iterator[str]:
    """Yield the lines of the data card on how to run the tasks."""
    name = harness_name(task)
    run = f"lm_eval --model hf --model_args pretrained=MODEL --include_path FOLDER --tasks {name}"
    yield from ("## Running it", "", "| task | meaning |", "|---|---|")
    for manner, scoring in product(_MANNERS, _SCORINGS):
        yield f"| `{name}_{manner}{scoring}` | {_MANNERS[manner][0]} {_SCORINGS[scoring]} |"
    yield from (
        "",
        "The model continues the beginning of the answer. `acc` compares candidates by their likelihood, `acc_norm` by",
        "that per character; `acceptable` is the share of texts that are an answer at all. `--num_fewshot 3` puts the",
        f"first three questions of `{_WORKED}` and their answers before each question.",
        "",
        "```bash",
        f"{run}_chat --apply_chat_template",
        f"{run}_plain --num_fewshot 3",
        "```",
        "",
    )


def harness_name(task: Task) -> str:
    """Return the common beginning of the names of the harness's tasks, such as `retrieval_equations`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", task.name or task.family)
