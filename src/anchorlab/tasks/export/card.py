"""Data cards: a page that describes exported data, the proof of its splits, and how to recreate it."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from itertools import chain
from shlex import quote

from anchorlab.tasks.batch import Example
from anchorlab.tasks.export.lm_eval import LM_EVAL, how_to_run
from anchorlab.tasks.registry import task_description, task_factory, task_names
from anchorlab.tasks.task import Task, prove_by_samples

# Not `task.toml`: `datasets` would take a folder with this file for another kind of data.
CARD, SPECIFICATION = "README.md", "specification.toml"
RIVAL = "rival_"
"""The prefix of columns that hold the answers of a rival rule."""

_MEANINGS = {
    "inputs": "the sequence: {inputs}",
    "positions": "the scored positions, counted from 0",
    "targets": "what a model is trained to predict at each of these positions: {outputs}",
    "answers": "the right answer at each of these positions; differs from the target where labels are noisy",
    "weights": "1 where a position counts, 0 where it pads the row",
    "split": "the name of the split in the task",
    "group": "the kind of sequence within the task; `all` if there is only one",
    RIVAL: "the answer of another rule, `{rule}`, at each of these positions; -1 if it has none",
    "text": "the sequence in words",
    "trace": "how the oracle finds the answer, step by step",
    "answer_text": "the answer in words",
    "prompt": "the premises and the question, a line each, with the paper's instruction to say the answer alone",
    "question": "the same without the instruction",
    "begun": "the beginning of the answer, which the model continues",
    "answer": "the right word",
    "candidates": "the acceptable answers",
    "depth": "the number of steps from the question to the answer",
    "path": "the words read from the question on, the last of them being the answer",
    "hops": "the name of each step of the path",
    "distances": "the number of the task's tokens from each word of the path back to the one before",
    "order": "the number of the premise at each place, premises being numbered step by step from the answer on",
}


@dataclass(frozen=True)
class Part:
    """One split as written.

    split, file_name: the split's name in the task, and the same name with only characters allowed in file names
    place: the path of the split's file, relative to the folder
    rows, distinct: the numbers of rows and of distinct sequences
    groups: the number of rows of each group
    columns: the type of each column from the outside in, such as `("list", "int64")`
    examples: the first rows
    size, sha256: the size of the file in bytes, and its hash
    """

    split: str
    file_name: str
    place: str
    rows: int
    distinct: int
    groups: Mapping[str, int]
    columns: Mapping[str, tuple[str, ...]]
    examples: tuple[Example, ...]
    size: int
    sha256: str


@dataclass(frozen=True)
class Card:
    """The content of a data card: the task, the arguments of `export`, and the written files.

    specification: the task as TOML
    format, n, seed, text: as for `export`
    """

    task: Task
    specification: str
    format: str
    n: int
    seed: int
    text: bool
    parts: tuple[Part, ...]

    @property
    def ours(self) -> bool:
        """Whether anchorlab itself declares the task; if not, its description and licence are its author's."""
        return self.task.name in task_names() and _is_ours(task_factory(self.task.name)[0])

    @property
    def command(self) -> str:
        """The command that writes the same files from the specification in the same folder."""
        whole = len(self.parts) == len(self.task.splits)
        splits = "" if whole else "".join(f" --split {quote(part.split)}" for part in self.parts)
        text = " --text" if self.text else ""
        options = f"--format {self.format} --n {self.n} --seed {self.seed}{splits}{text}"
        return f"anchorlab export {SPECIFICATION} {options} --out FOLDER"


def card_text(card: Card) -> str:
    """Return the card as Markdown; for the format `hf` with the front matter that the Hub and `datasets` read."""
    front = _front_matter(card) if card.format == "hf" else ()
    running = how_to_run(card.task) if card.format == LM_EVAL else ()
    sections = chain(front, _definition(card), _separation(card), _rows(card), _examples(card), running, _making(card))
    return "\n".join(sections) + "\n"


def _definition(card: Card) -> Iterator[str]:
    task, name = card.task, card.task.name
    yield from (f"# {_plain(name or task.family)}", "")
    if name in task_names():
        yield from (task_description(name), "")
    words = inspect.cleandoc(type(task).__doc__ or "").splitlines()
    if _is_ours(type(task)) and not card.ours:  # only the first line of our class's docstring applies to the task
        words = words[:1]
    yield from (f"A task of the family `{task.family}`:", "", *_fenced("\n".join(words)), "")
    yield from (f"Its full specification, also in `{SPECIFICATION}`:", "", *_fenced(card.specification, "toml"), "")


def _separation(card: Card) -> Iterator[str]:
    task = card.task
    # the default proof by samples draws at most as many sequences as rows
    by_samples = type(task).proof is Task.proof
    proof = prove_by_samples(task, min(card.n, task.proof_samples)) if by_samples else task.proof()
    how = "by enumeration" if proof.method == "enumeration" else "on samples"
    yield from (
        "## Separation of the splits",
        "",
        f"Checked {how}; it {'holds' if proof.holds else 'does not hold'}.",
        "",
    )
    yield from (*(f"- {words}" for words in proof.words), "")


def _rows(card: Card) -> Iterator[str]:
    yield from (
        "## Splits",
        "",
        "| split | file | rows | distinct sequences | bytes | SHA-256 |",
        "|---|---|---|---|---|---|",
    )
    for part in card.parts:
        numbers = f"{part.rows} | {part.distinct} | {part.size} | `{part.sha256}`"
        yield f"| {_plain(part.split)} | `{part.place}` | {numbers} |"
    yield from ("", "A sequence can occur more than once.", "")
    renamed = [part for part in card.parts if part.file_name != part.split]
    if renamed:
        names = ", ".join(f"`{part.split}` is called `{part.file_name}`" for part in renamed)
        yield from (f"In names of files and of splits to load: {names}.", "")
    if any(len(part.groups) > 1 for part in card.parts):
        yield from ("| split | group | rows |", "|---|---|---|")
        yield from (
            f"| {_plain(part.split)} | {_plain(group)} | {rows} |"
            for part in card.parts
            for group, rows in part.groups.items()
        )
        yield ""
    shape = card.task.shape
    tokens = shape.inputs == "tokens"
    inputs = f"token ids below {shape.input_size}" if tokens else f"vectors of {shape.input_size} numbers"
    yield from ("## Columns", "", "| column | type | meaning |", "|---|---|---|")
    for column, kind in card.parts[0].columns.items():
        rule = column.removeprefix(RIVAL)
        meaning = _MEANINGS[RIVAL if rule != column else column]
        outputs = f"ids below {shape.output_size}" if kind[-1] == "int64" else f"{shape.output_size} numbers"
        meaning = meaning.format(inputs=f"{shape.length} {inputs}", outputs=outputs, rule=rule)
        yield f"| `{column}` | {' of '.join(kind)} | {meaning} |"
    yield ""


def _examples(card: Card) -> Iterator[str]:
    yield from ("## First rows, with the oracle's trace", "")
    for part in card.parts:
        for example in part.examples:
            yield from (*_fenced(f"{part.split}: {example.text} -> {example.answer}\n{'; '.join(example.trace)}"), "")


def _making(card: Card) -> Iterator[str]:
    made = f"anchorlab {version('anchorlab')}, polars {version('polars')} and numpy {version('numpy')}"
    yield from ("## How it was made", "", f"By {made}, task family `{card.task.family}`, seed {card.seed}.", "")
    yield from ("These versions write the same bytes again:", "", *_fenced(card.command, "bash"), "")
    call = f"sample(split, {card.n}, seed={card.seed})"
    if card.format == LM_EVAL:
        call = f"questions({card.n}, seed={card.seed}, split=split)"
    call = f'anchorlab.task("{SPECIFICATION}").{call}'
    yield f"In Python, the rows of a split are `{call}`."
    if card.format == "hf":
        yield from ("", "Read it with", "", *_fenced('datasets.load_dataset("FOLDER")', "python"))
    licence = "MIT, as anchorlab itself." if card.ours else "The task author's; write it here before sharing."
    yield from ("", "## Licence", "", licence)


def _front_matter(card: Card) -> Iterator[str]:
    licence = ("license: mit",) if card.ours else ()
    yield from ("---", *licence, f"pretty_name: {json.dumps(card.task.name or card.task.family)}")
    yield from ("tags:", "- synthetic", "- anchorlab", "configs:", "- config_name: default", "  data_files:")
    for part in card.parts:
        yield from (f"  - split: {part.file_name}", f"    path: {part.place}")
    yield from ("dataset_info:", "  features:")
    for column, kind in card.parts[0].columns.items():
        yield f"  - name: {column}"
        yield from _feature(kind, "    ")
    yield "  splits:"
    for part in card.parts:
        yield from (f"  - name: {part.file_name}", f"    num_bytes: {part.size}", f"    num_examples: {part.rows}")
    yield from ("---", "")


def _feature(kind: tuple[str, ...], indent: str) -> Iterator[str]:
    """Yield a column's type as front matter: lists of plain values on one line, nested lists on several."""
    if kind[0] != "list":
        yield f"{indent}dtype: {kind[0]}"
    elif kind[1] != "list":
        yield f"{indent}sequence: {kind[1]}"
    else:
        yield from (f"{indent}sequence:", *_feature(kind[1:], indent + "  "))


def _is_ours(declared: Callable[..., Task]) -> bool:
    return declared.__module__.split(".")[0] == "anchorlab"


def _plain(text: str) -> str:
    """Return text that Markdown shows literally in a heading or a table cell: no HTML, no line breaks, no `|`."""
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def _fenced(text: str, language: str = "text") -> Iterator[str]:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))  # longer than any run in the text
    yield from (f"{fence}{language}", *text.rstrip("\n").splitlines(), fence)
