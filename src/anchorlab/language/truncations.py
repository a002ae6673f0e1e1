"""Search for the truncation that most favours right answers: each matrix in turn, truncated to several ranks (LASER).

Source: truncated weights, section 2.2.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError, StoreError
from anchorlab.language.answers import Answers, Questions, combine, first_block
from anchorlab.language.encode import ABSENT
from anchorlab.language.model import LanguageModel
from anchorlab.models.edits import Truncate, apply_each, checked_fractions
from anchorlab.patterns import matches, matching
from anchorlab.progress import Counted, counted
from anchorlab.runs.atomic_files import check_named_file, write_file
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces
from anchorlab.spec import unknown_name

if TYPE_CHECKING:
    import polars

FRACTIONS = (0.0, 0.01, 0.05, 0.2, 0.5)
"""The default fractions of the rank to keep; the full model is always included."""


@dataclass(frozen=True)
class TruncationSearch:
    """A model's answers under each truncation of a single matrix.

    Fields
        weights: the matrices
        fractions: the fractions of the rank that were kept, without 1
        answers: the answers under each truncation, `[weight fraction prompt]`
        full: the answers of the full model, `[prompt]`
    """

    weights: tuple[str, ...]
    fractions: tuple[float, ...]
    answers: Answers
    full: Answers

    @property
    def loss(self) -> Float[Tensor, "weight fraction"]:
        """The mean of -log p(right word) over prompts that have one."""
        return -self.answers.right.nanmean(dim=-1)

    def best(self, *patterns: str) -> Truncate:
        """Return the truncation with the lowest loss, among all matrices or among the matrices that match any pattern.

        Errors: `SpecError` for patterns that match no matrix.
        """
        rows = [row for row, name in enumerate(self.weights) if any(matches(one, name) for one in patterns or ["**"])]
        if not rows:
            raise unknown_name("weights", ", ".join(patterns), self.weights, "matrix")
        losses = self.loss[rows].nan_to_num(torch.inf)  # a model that gives NaN is not the best
        row, column = divmod(int(losses.argmin()), len(self.fractions))
        return Truncate(weight=self.weights[rows[row]], fraction=self.fractions[column])

    def table(self) -> "polars.DataFrame":
        """Return a row for each truncation, the lowest loss first: weight, fraction, loss, right, others.

        `right` and `others`, the wrong candidates together, are probabilities, averaged over prompts.
        """
        import polars

        pairs = [(weight, fraction) for weight in self.weights for fraction in self.fractions]
        columns = {
            "weight": [weight for weight, _ in pairs],
            "fraction": [fraction for _, fraction in pairs],
            "loss": self.loss.flatten().tolist(),
            "right": self.answers.right.exp().nanmean(-1).flatten().tolist(),
            "others": self.answers.others.exp().nanmean(-1).flatten().tolist(),
        }
        return polars.DataFrame(columns).sort("loss", maintain_order=True)


def search_truncations(
    questions: Questions,
    weights: Sequence[str] = ("blocks.**",),
    fractions: Sequence[float] = FRACTIONS,
    *,
    keep: Path | str | None = None,
    progress: Counted = None,
) -> TruncationSearch:
    """Score questions under every truncation of one matrix at a time.

        asked = Questions(model, [Prompt("Madrid is located in", "Spain")])
        found = search_truncations(asked, ["blocks.2?.mlp.*"])
        found.best()  # Truncate(weight='blocks.27.mlp.W_in', fraction=0.01)

    Each matrix is decomposed once for all its ranks, and each pass begins at the matrix's block.

    Args:
        questions: the prompts; at least one must have a right answer that is scored
        weights: names of matrices, or patterns such as `blocks.1.mlp.*`
        fractions: the fractions of the rank to keep, from 0 to 1; 1 is the full model, which is always included
        keep: a folder for the answers; answers found there are not computed again, so a stopped search can be resumed
        progress: called with the work done and its total; None shows it on a terminal and in a notebook, False nowhere

    Errors: `SpecError` for a pattern that matches no matrix, for a fraction outside 0..1, without any right answer that
    is scored, and as for the edits.
    """
    model = questions.model
    names = matrices(model, weights)
    tried = checked_fractions(fractions)
    if not (questions.tokens.answers != ABSENT).any():
        problem = "; ".join(("none has a right answer that is scored", *questions.tokens.notes[:1]))
        raise SpecError("prompts", problem, "give at least one an answer that begins no candidate")
    setting = _setting(questions, tried) if keep is not None else ""
    work = [len(model.blocks) - first_block([name]) for name in names]
    found = []
    with counted("cutting", progress) as tell:
        for place, name in enumerate(names):
            tell(sum(work[:place]), sum(work))
            path = None if keep is None else Path(keep, hashlib.sha256(f"{setting} {name}".encode()).hexdigest()[:20])
            kept = None if path is None else _kept(path, questions.notes)
            if kept is None:
                kept = _cut(questions, name, tried)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_file(path.parent, f"{path.name}.{{digest}}.safetensors", tensor_pieces(kept.tensors))
            found.append(kept)
        tell(sum(work), sum(work))
    return TruncationSearch(tuple(names), tried, combine(found), questions.answers())


def matrices(model: LanguageModel, weights: Sequence[str]) -> list[str]:
    """Return the names of the matrices that patterns select, each once, in the order of the model.

    Errors: `SpecError` without patterns, and for a pattern that matches no matrix.
    """
    if not weights:
        raise SpecError("weights", "there are none", "give the name of a matrix, or a pattern such as blocks.1.mlp.*")
    known = [name for name, value in model.named_parameters() if value.ndim == 2]
    for index, pattern in enumerate(weights):
        matching(pattern, known, f"weights.{index}", "matrix")
    return [name for name in known if any(matches(pattern, name) for pattern in weights)]


def _cut(questions: Questions, name: str, fractions: Sequence[float]) -> Answers:
    """Return the answers with one matrix truncated, `[fraction prompt]`."""
    whole = {name: questions.model.get_parameter(name).detach().unsqueeze(0)}
    variants = apply_each(whole, [[Truncate(weight=name, fraction=fraction)] for fraction in fractions])
    return combine([questions.answers({name: weights[name][0]}) for weights in variants])


def _kept(path: Path, notes: tuple[str, ...]) -> Answers | None:
    """Return the answers that an earlier search stored; None if the file is missing or damaged."""
    for file in path.parent.glob(f"{path.name}.*.safetensors"):
        try:
            return Answers(**read_tensors(check_named_file(file)), notes=notes)
        except StoreError:
            file.unlink()
    return None


def _setting(questions: Questions, fractions: Sequence[float]) -> str:
    """Return as text what determines the answers except the matrix: the model, prompts, further words and fractions."""
    content = hashlib.sha256(repr(questions.model.hugging_face.config.to_diff_dict()).encode())
    for name, value in questions.model.named_parameters():
        content.update(name.encode())
        content.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    tokens = questions.tokens
    asked = [one.tolist() for name, one in vars(tokens).items() if name != "notes"]
    return json.dumps([content.hexdigest(), asked, questions.word_ids.tolist(), list(fractions)])
