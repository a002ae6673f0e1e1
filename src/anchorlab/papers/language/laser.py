"""Shared by the studies of truncated language models: answers before and after a truncation, and their statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.language import LanguageModel
from anchorlab.language.answers import Answers, Questions
from anchorlab.language.next_words import edited_weights
from anchorlab.language.prompts import Prompt, generic_words
from anchorlab.models import Truncate
from anchorlab.studies import Measurement, over_shared

WORDS = generic_words()
"""The generic words that are followed; the first is "the"."""

SIX = ("country", "capital", "language", "currency", "symbol", "author")
"""The relations whose facts are asked together: all but native languages."""

SUBJECTS = "subjects"
"""The name of the independent units of claims on facts: a country, an element or an author is one unit."""


@dataclass(frozen=True)
class Laser:
    """Answers to the same prompts without and with a truncation."""

    truncation: str  # in words, such as `W_in of layer 28, ρ = 0.01`
    prompts: tuple[Prompt, ...]
    full: Answers  # the full model's answers
    cut: Answers  # the answers under the truncation

    @property
    def both(self) -> tuple[Answers, Answers]:
        """The answers without and with the truncation."""
        return self.full, self.cut

    @property
    def units(self) -> tuple[str, ...]:
        """The subject of each prompt; prompts about one subject are one unit."""
        return tuple(one.unit for one in self.prompts)

    def where(self, chosen: Sequence[bool]) -> "Laser":
        """Return the prompts for which `chosen` is true, with their answers."""
        kept = torch.tensor(chosen)
        prompts = tuple(one for one, keep in zip(self.prompts, chosen, strict=True) if keep)
        return Laser(self.truncation, prompts, self.full[kept], self.cut[kept])

    @property
    def probabilities(self) -> tuple[Float[Tensor, "prompt"], ...]:
        """Probabilities of the right word and "the" with the truncation, then without: four columns `[prompt]`."""
        cut, full = self.cut, self.full
        return cut.right.exp(), cut.words[:, 0].exp(), full.right.exp(), full.words[:, 0].exp()

    @property
    def ratios(self) -> tuple[float, float]:
        """The ratio of the mean probabilities of the right word and "the", without and with the truncation."""
        full, cut = (mean(one.right) / mean(one.words[:, 0]) for one in self.both)
        return full, cut


def by_unit(units: Sequence[str], *columns: Float[Tensor, "prompt"]) -> Float[Tensor, "unit column"]:
    """Return the sum of each column over the prompts of each unit, then the number of these prompts: `[unit column]`.

    Prompts about one subject, such as the cities of a country and its capital in two phrasings, are not independent;
    means and their quotients are computed from these sums. A prompt with NaN in a column is left out.
    """
    rows = torch.stack([*columns, torch.ones(len(units))], dim=-1).double()
    rows = torch.where(rows.isnan().any(dim=-1, keepdim=True), 0, rows)
    places = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
    found = torch.zeros(len(places), rows.shape[-1], dtype=rows.dtype)
    found.index_add_(0, torch.tensor([places[one] for one in units], dtype=torch.long), rows)
    return found[found[:, -1] > 0]


def quotient(rows: Float[Tensor, "unit column"]) -> Float[Tensor, ""]:
    """Return the ratio of the means of two columns, from sums by `by_unit`."""
    total = rows.sum(dim=0)
    return total[0] / total[1]


def first_mean(rows: Float[Tensor, "unit column"]) -> Float[Tensor, ""]:
    """Return the mean of the first column, from sums by `by_unit`."""
    total = rows.sum(dim=0)
    return total[0] / total[-1]


def rise_of_ratio(rows: Float[Tensor, "unit column"]) -> Float[Tensor, ""]:
    """Return (first / second) / (third / fourth) of four columns' means, from sums by `by_unit`."""
    total = rows.sum(dim=0)
    return total[0] / total[1] / (total[2] / total[3])


def growth_of_second(rows: Float[Tensor, "unit column"]) -> Float[Tensor, ""]:
    """Return exp of the mean of the second column minus the first, both logarithms, from sums by `by_unit`."""
    total = rows.sum(dim=0)
    return ((total[1] - total[0]) / total[-1]).exp()


def right_over_the(laser: Laser) -> Measurement:
    """Measure the ratio of the mean probabilities of the right word and "the", without the truncation."""
    _, _, right, the = laser.probabilities
    return over_shared(by_unit(laser.units, right, the), quotient, SUBJECTS)


def the_with_and_without(laser: Laser) -> Measurement:
    """Measure the ratio of the mean probability of "the" with the truncation to that without."""
    _, cut, _, full = laser.probabilities
    return _of_subjects(laser, cut, full)


def right_with_and_without(laser: Laser) -> Measurement:
    """Measure the ratio of the mean probability of the right word with the truncation to that without."""
    cut, _, full, _ = laser.probabilities
    return _of_subjects(laser, cut, full)


def _of_subjects(laser: Laser, cut: Tensor, full: Tensor) -> Measurement:
    detail = f"{float(full.nanmean()):.3g} to {float(cut.nanmean()):.3g}; {laser.truncation}"
    return over_shared(by_unit(laser.units, cut, full), quotient, SUBJECTS, detail)


def first_gain(laser: Laser) -> Measurement:
    """Measure how much the truncation raises the share of prompts whose right word is the likeliest of its kind."""
    before, after = map(first_of_its_kind, laser.both)
    detail = f"{float(before.nanmean()):.2f} to {float(after.nanmean()):.2f}; {laser.truncation}"
    return over_shared(by_unit(laser.units, after - before), first_mean, SUBJECTS, detail)


def kinds_over_right(laser: Laser) -> Measurement:
    """Measure the factor by which the wrong words of the kind rise together, divided by that for the right word.

    Computed from means of log-probabilities; no value if the right word does not rise.
    """
    right, others = laser.cut.right - laser.full.right, laser.cut.others - laser.full.others
    gains = float(right.nanmean()), float(others.nanmean())
    detail = f"right times {exp(gains[0]):.3g}, wrong ones times {exp(gains[1]):.3g}; {laser.truncation}"
    if not gains[0] > 0:
        return Measurement(None, detail=detail)
    return over_shared(by_unit(laser.units, right, others), growth_of_second, SUBJECTS, detail)


def ask_both(questions: Questions, truncation: Truncate, full: Answers | None = None) -> Laser:
    """Return the answers to questions without and with a truncation; `full` gives those without, if known."""
    before = questions.answers() if full is None else full
    after = questions.answers(edited_weights(questions.model, [truncation]))
    return Laser(in_words(truncation), questions.prompts, before, after)


def mean(log_probabilities: Float[Tensor, "..."]) -> float:
    """Return the mean of probabilities given as logarithms, leaving out NaN, which marks a prompt without the word."""
    return float(log_probabilities.exp().nanmean())


def first_of_its_kind(answers: Answers) -> Float[Tensor, "*edit prompt"]:
    """Return whether each right word is likelier than every wrong candidate; NaN for a prompt that lacks either."""
    return torch.where(answers.right_place.isnan(), torch.nan, (answers.right_place == 1).float())


def among_its_kind(answers: Answers) -> float:
    """Return the share of prompts with both kinds of words whose right word is likelier than every wrong candidate."""
    return float(first_of_its_kind(answers).nanmean())


def layer_of(weight: str) -> int:
    """Return the index of the block that a weight is in, from 0."""
    return int(weight.split(".")[1])


def in_words(truncation: Truncate) -> str:
    """Return a description of a truncated matrix of a block, such as `W_in of layer 28, ρ = 0.01`."""
    kind = truncation.weight.rpartition(".")[2]
    return f"{kind} of layer {layer_of(truncation.weight)}, ρ = {truncation.fraction:g}"


def input_matrices(model: LanguageModel, layers: Sequence[int]) -> list[str]:
    """Return the names of the input matrices of these feed-forward layers; a gated layer has two."""
    known = dict(model.named_parameters())
    names = [f"blocks.{layer}.mlp.{kind}" for layer in layers for kind in ("W_gate", "W_in")]
    return [name for name in names if name in known]


def comparison(name: str, laser: Laser) -> list[tuple[str | float, ...]]:
    """Return two table rows under `COMPARED`, for the full and the truncated model."""
    rows: list[tuple[str | float, ...]] = []
    for which, answers, ratio in zip(("full", laser.truncation), laser.both, laser.ratios, strict=True):
        words = answers.words.exp().mean(0).tolist()
        rank = float(answers.right_rank.nanmedian())
        others = mean(answers.others)
        rows.append((name, which, mean(answers.right), others, *words, ratio, rank, among_its_kind(answers)))
    return rows


COMPARED = (
    "prompts", "model", "right word", "wrong ones of its kind", *(f'"{word}"' for word in WORDS), 'right / "the"',
    "median rank", "first of its kind",
)  # fmt: skip
"""The columns of a comparison: mean probabilities, then their ratio and the rank of the right word."""
