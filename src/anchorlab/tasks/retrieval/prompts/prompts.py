"""The retrieval problem in words: five formulations as tasks, and the same questions as texts for language models."""

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep, drawn_in_parts
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.retrieval.prompts.formulation import Formulation, Question, pieces
from anchorlab.tasks.retrieval.prompts.formulations import FORMULATIONS
from anchorlab.tasks.retrieval.prompts.layout import Layout, order_premises
from anchorlab.tasks.retrieval.prompts.reading import Reading, hop_names, read
from anchorlab.tasks.task import Task

_ROWS_AT_ONCE = 8192

FormulationName = Literal["equations", "lives-with", "kingdoms", "functions", "relatives"]
Order = Literal["paper", "steps", "shuffled", "sorted"]


@task_family("retrieval-prompts")
class RetrievalPrompts(Task):
    """A question in words about the end of a chain of premises, such as "a = 1, b = a. What is the value of b?"

    A token is a word or the text between two words; the texts of a sequence's tokens, joined, are the question.
    Examples are in appendix A of the paper.

    formulation: the name of the formulation, which determines the words
    chains, steps: the numbers N of chains and D of steps. Steps are counted from the answer; the question is about one
        of the N chains
    order: the order of the premises. `paper`: step by step from the answer on, shuffled as in the paper's examples
        (chains and homes within each step, tables and names not at all); `steps`: shuffled within every step;
        `shuffled`: all shuffled together; `sorted`: not shuffled
    distractors: the number of further chains, which lack the premise next to the question, so that no question leads to
        them
    asked_steps: the depths at which a question may begin, if not only D; each sequence draws one of them. Relatives can
        be asked at depths 1 and 4

    The groups are the depths asked. The splits have the same distribution, and sequences can recur, so `separated` is
    false.
    Source: stacked attention heads, section 4 and appendix A.
    """

    family: Literal["retrieval-prompts"] = "retrieval-prompts"
    formulation: FormulationName = "equations"
    chains: int = Field(4, ge=1, le=64)
    steps: int = Field(5, ge=1, le=64)
    order: Order = "paper"
    distractors: int = Field(0, ge=0, le=64)
    asked_steps: Numbers = ()

    separated: ClassVar[bool] = False
    proof_samples: ClassVar[int] = 50_000  # texts are read one by one

    @model_validator(mode="after")
    def _fits(self) -> "RetrievalPrompts":
        if self.distractors and self.steps == 1:
            problem = "need a step behind the one that they lack, but there is one step"
            raise SpecError("distractors", problem, "add steps, or leave them 0")
        known = tuple(sorted(self.words.questions))
        if list(self.asked_steps) != sorted({*self.asked_steps} & {*known}):
            problem = f"{list(self.asked_steps)} are not some of {', '.join(map(str, known))}, in order"
            raise SpecError("asked_steps", problem, "give each depth once, or none for the last")
        return self

    @cached_property
    def words(self) -> Formulation:
        """The premises and questions in words, with the candidates."""
        return FORMULATIONS[self.formulation](self.chains, self.chains + self.distractors, self.steps)

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.words, mixed=self.order == "shuffled")

    @cached_property
    def _shuffled(self) -> tuple[bool, ...]:
        """Whether the premises of each step are in random order."""
        kept = {"steps": True, "shuffled": True, "sorted": False}
        return tuple(kept.get(self.order, step.shuffled) for step in self.words.steps)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths at which questions may begin."""
        return self.asked_steps or (self.words.depth,)

    @property
    def hops(self) -> tuple[str, ...]:
        """The names of the hops from the longest question to its answer, as in the oracle's trace."""
        return hop_names(self.formulation, self.steps)

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        asking = len(pieces(self.words.questions[self.depths[0]]))
        vocabulary = len(self._layout.vocabulary)
        return TaskShape("tokens", self._layout.length + asking, vocabulary, vocabulary)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` questions.

        Latents: `roots` `[batch root]`, the chain that each word of the question belongs to; `depth` `[batch]`;
        `order` `[batch place]`, the number of the premise at each place; `places` and `path` `[batch hop]`, the
        position and the token of the value that each hop reads, -1 for hops above the depth.
        """
        self.check_draw(split, n, seed)
        random = generator(seed, "sequences", split)
        parts = drawn_in_parts(n, _ROWS_AT_ONCE, lambda rows: self._draw(random, rows))
        inputs, targets = parts.pop("inputs"), parts.pop("answer").unsqueeze(1)
        positions, groups = torch.tensor([inputs.shape[1] - 1]), tuple(f"step {one}" for one in self.depths)
        group = torch.searchsorted(torch.tensor(self.depths), parts["depth"])
        return Batch(inputs, targets, targets, positions, split, group=group, groups=groups, latents=parts)

    def _draw(self, random: np.random.Generator, n: int) -> dict[str, Int[np.ndarray, "batch ..."]]:
        """Draw the inputs, answers and latents of `n` questions."""
        words, layout = self.words, self._layout
        values = []
        for step in words.steps:
            indices = np.array(step.pool_indices)
            value = np.empty((n, len(step.keys)), dtype=np.int64)
            for pool, listed in enumerate(step.pools):
                own = np.flatnonzero(indices == pool)
                value[:, own] = np.argsort(random.random((n, len(listed))), axis=1)[:, : len(own)]
            values.append(value)
        roots = np.stack([random.integers(choices, size=n) for choices in words.roots], axis=1)
        depth = np.array(self.depths)[random.integers(len(self.depths), size=n)]
        order = order_premises(layout, self._shuffled, random.random((n, layout.premises)))
        (laid, starts), read = layout.lay_out(values, order), words.hops(values, roots)
        rows, asked = np.arange(n), np.empty((n, self.shape.length - layout.length), dtype=np.int64)
        for one in self.depths:
            mine = depth == one
            asked[mine] = layout.question(one, [hop[mine] for hop in read])
        premises = np.stack([layout.offsets[step] + hop for step, hop in zip(words.reads, read, strict=True)], axis=1)
        places = starts[rows[:, None], premises] + layout.value_columns[premises]
        path = laid[rows[:, None], places]
        within = np.array(words.levels) <= depth[:, None]
        return {
            "inputs": np.concatenate([laid, asked], axis=1),
            "answer": path[:, -1],
            "roots": roots,
            "depth": depth,
            "order": order,
            "places": np.where(within, places, -1),
            "path": np.where(within, path, -1),
        }

    def questions(self, n: int, seed: int = 0, split: str = "test") -> tuple[Question, ...]:
        """Draw `n` questions as texts, the same as `sample(split, n, seed)` draws as tokens.

        With the same seed, the premises are the same for each single depth in `asked_steps`; several reorder them.
        """
        batch, words = self.sample(split, n, seed), self.words
        end = batch.inputs.shape[1] - 1
        latents = {name: value.tolist() for name, value in batch.latents.items()}
        questions = []
        for row, text in enumerate(self.texts(batch.inputs)):
            depth, places = latents["depth"][row], latents["places"][row]
            read = [hop for hop, place in enumerate(places) if place >= 0]
            question = zip(batch.inputs[row, self._layout.length :], pieces(words.questions[depth]), strict=True)
            asked = [self._layout.text([int(token)]) for token, piece in question if piece[0] == "{"]
            before = {hop: end if words.levels[hop] == depth else places[hop - 1] for hop in read}
            questions.append(
                Question(
                    text=text,
                    instruction=words.instruction,
                    begun=words.begun[depth].format(*asked),
                    answer=self._layout.text(batch.answers[row].tolist()),
                    candidates=words.candidates,
                    depth=depth,
                    path=tuple(self._layout.text([latents["path"][row][hop]]) for hop in read),
                    hops=tuple(self.hops[hop] for hop in read),
                    distances=tuple(abs(before[hop] - places[hop]) for hop in read),
                    order=tuple(latents["order"][row]),
                )
            )
        return tuple(questions)

    def texts(self, inputs: Int[Tensor, "batch position"]) -> list[str]:
        """Return sequences as texts, without the paper's instruction."""
        return [self._layout.text(tokens) for tokens in inputs.tolist()]

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the answers, found by reading the texts from the question, premise by premise, to the chain's end.

        An answer is known if exactly one premise fits at every hop. The trace has the position and token of each value
        read.
        """
        names, ids = self.hops, self._layout.ids
        answers = torch.full((len(inputs), 1), -1)
        places, values = (torch.full((len(inputs), len(names)), -1) for _ in range(2))
        for row, tokens in enumerate(inputs.tolist()):
            found, position = self._read(tokens)
            if found.answer is None or found.answer not in ids:
                continue
            answers[row] = ids[found.answer]
            for hop in found.hops:
                if hop.name in names and hop.at in position:
                    column, place = names.index(hop.name), position[hop.at]
                    places[row, column], values[row, column] = place, tokens[place]
        trace = tuple(TraceStep(name, places[:, hop], values[:, hop]) for hop, name in enumerate(names))
        return Answer(answers.clamp(min=0), answers >= 0, trace)

    def _read(self, tokens: list[int]) -> tuple[Reading, dict[int, int]]:
        """Return the answer read from the text, and the token position for each character at which a token begins."""
        parts = [self._layout.text([token]) for token in tokens]
        starts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        return read(self.formulation, "".join(parts)), {start: place for place, start in enumerate(starts)}

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return 0 for a well-formed question, which both splits could draw, and -1 for any other."""
        ordered = [not shuffled for shuffled in self._shuffled]
        well_formed = [self._layout.well_formed(text, ordered, self.depths) for text in self.texts(inputs)]
        return torch.where(torch.tensor(well_formed, dtype=torch.bool), 0, -1)

    def text_of(self, token: int) -> str:
        """Return the text of a token, with its spaces and ends of lines."""
        return self._layout.text([token])

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """Return the questions with the values read at each hop."""
        answer = self.oracle(inputs)
        values = torch.stack([step.value for step in answer.trace], dim=1).tolist()
        sides = self.split_of(inputs).tolist()
        rows = zip(inputs.tolist(), values, answer.answers[:, 0].tolist(), answer.known[:, 0].tolist(), strict=True)
        return [self._render(*row, sides[number]) for number, row in enumerate(rows)]

    def _render(self, tokens: list[int], read: list[int], answer: int, known: bool, side: int) -> Example:
        roles = ["premise"] * self._layout.length + ["question"] * (len(tokens) - self._layout.length)
        path = [f"{name}: {self.text_of(value)}" for name, value in zip(self.hops, read, strict=True) if value >= 0]
        return Example(
            tuple(Token(self.text_of(token), role) for token, role in zip(tokens, roles, strict=True)),
            tuple(path) if known else ("no single premise at some hop",),
            self.text_of(answer) if known else "unknown",
            self.splits[side] if side >= 0 else "nowhere",
            separator="",
        )


_DESCRIBED = {
    "equations": ("Equations in words for language models: a = 3, b = a, c = b, what is the value of c?", 5),
    "lives-with": ("Who lives with whom, in words for language models: a city at the end of a chain of people.", 5),
    "kingdoms": ("Fictional kingdoms in words for language models: a person at the end of a chain of facts.", 5),
    "functions": (
        "Functions by their tables, in words for language models: g = f, a = 2, what is the value of g(a)?",
        2,
    ),
    "relatives": ("Homes of relatives, in words for language models: where does Eve live, a lawyer?", 4),
}  # with the steps of the paper's examples


def _register(name: FormulationName) -> None:
    """Register a formulation as the task `retrieval/<name>`."""
    described, paper = _DESCRIBED[name]

    def factory(
        chains: int = 4, steps: int = paper, order: Order = "paper", distractors: int = 0, asked_steps: Numbers = ()
    ) -> RetrievalPrompts:
        return RetrievalPrompts(
            formulation=name, chains=chains, steps=steps, order=order, distractors=distractors, asked_steps=asked_steps
        )

    factory.__doc__ = f"{described}\n\nThe arguments are the same as for `RetrievalPrompts`."
    register_task(f"retrieval/{name}")(factory)


for _name in get_args(FormulationName):
    _register(_name)
