"""What studies of truncated language models share: answers before and after a truncation, and their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from anchorlab.language import LanguageModel
from anchorlab.language.answers import Answers, Questions
from anchorlab.language.edited import edited_weights
from anchorlab.language.prompts import Prompt, generic_words
from anchorlab.models import Truncate

WORDS = generic_words()
"""The generic words that are followed; the first is "the"."""


@dataclass(frozen=True)
class Laser:
    """Answers to the same prompts without and with a truncation.

    Fields
        truncation: in words, such as `W_in of layer 28, rho = 0.01`
        prompts: what was asked
        full: the full model's answers, `[prompt]`
        cut: those under the truncation, `[prompt]`
    """

    truncation: str
    prompts: tuple[Prompt, ...]
    full: Answers
    cut: Answers

    @property
    def both(self) -> tuple[Answers, Answers]:
        """The answers without and with the truncation."""
        return self.full, self.cut

    @cached_property
    def the(self) -> tuple[float, float]:
        """The mean probability of "the", without and with the truncation."""
        return mean(self.full.words[:, 0]), mean(self.cut.words[:, 0])

    @cached_property
    def right(self) -> tuple[float, float]:
        """The mean probability of the right word, without and with the truncation."""
        return mean(self.full.right), mean(self.cut.right)

    @property
    def ratios(self) -> tuple[float, float]:
        """The mean probability of the right word over that of "the", without and with the truncation."""
        return self.right[0] / self.the[0], self.right[1] / self.the[1]


def ask_both(questions: Questions, truncation: Truncate, full: Answers | None = None) -> Laser:
    """Ask questions without a truncation, unless those answers are known, and with it."""
    before = questions.answers() if full is None else full
    after = questions.answers(edited_weights(questions.model, [truncation]))
    return Laser(in_words(truncation), questions.prompts, before, after)


def mean(log_probabilities: Tensor) -> float:
    """Return the mean probability, of prompts that have such a word."""
    return float(log_probabilities.exp().nanmean())


def among_its_kind(answers: Answers) -> float:
    """Return the share of prompts whose right word is likelier than every wrong candidate, of those that have both."""
    places = answers.right_place[~answers.right_place.isnan()]
    return float((places == 1).float().mean())


def layer_of(weight: str) -> int:
    """Return the block that a weight is in, counted from 0."""
    return int(weight.split(".")[1])


def in_words(truncation: Truncate) -> str:
    """Return a truncation of a matrix within a block in words."""
    kind = truncation.weight.rpartition(".")[2]
    return f"{kind} of layer {layer_of(truncation.weight)}, ρ = {truncation.fraction:g}"


def input_matrices(model: LanguageModel, layers: Sequence[int]) -> list[str]:
    """Return the names of the input matrices of these feed-forward layers; a gated layer has two."""
    known = dict(model.named_parameters())
    names = [f"blocks.{layer}.mlp.{kind}" for layer in layers for kind in ("W_gate", "W_in")]
    return [name for name in names if name in known]


def comparison(name: str, laser: Laser) -> list[tuple[str | float, ...]]:
    """Return two rows of a table, of the full model and of the truncated one, under `COMPARED`."""
    rows: list[tuple[str | float, ...]] = []
    for which, answers, ratio in zip(("full", laser.truncation), laser.both, laser.ratios, strict=True):
        words = answers.words.exp().mean(0).tolist()
        rank = float(answers.right_rank.median())
        others = mean(answers.others)
        rows.append((name, which, mean(answers.right), others, *words, ratio, rank, among_its_kind(answers)))
    return rows


COMPARED = (
    "prompts", "model", "right word", "wrong ones of its kind", *(f'"{word}"' for word in WORDS), 'right / "the"',
    "median rank", "first of its kind",
)  # fmt: skip
"""The columns of a comparison: mean probabilities, then their ratio and the rank of the right word."""
