"""Evaluation in one mapped pass over all members."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anchorlab.models.edits import apply_each
from anchorlab.tasks import Batch
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.evaluation import Evaluator, Key, first_block

logger = logging.getLogger(__name__)


class MappedEvaluator(Evaluator):
    """Measure all members at once; the number of kernels does not depend on the number of members.

    Resting members are measured too and their numbers dropped: leaving them out would copy the others' weights. If
    torch cannot map a user's metrics, or memory runs out, members are measured one by one; the reason is logged and
    kept in `fallback`.
    """

    fallback: str | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Members with different data sizes may have fewer sequences. Pad all to one length, so that a member's sum has
        # the same length whichever other members there are.
        longest = 0 if self.members.data_size is None else self.size
        self._tensors = {split: _stack_tensors(batches, longest) for split, batches in self._batches.items()}
        self._stacked_shares = {split: _stack_shares(each, longest) for split, each in self._shares.items()}

    def _means(self, ensemble: Ensemble, members: Sequence[int]) -> dict[Key, Float[Tensor, ""]]:
        if self.fallback is None:
            try:
                return self._mapped_means(ensemble, members)
            except RuntimeError as error:
                self.fallback = str(error).splitlines()[0]
                logger.warning("members are measured one by one: %s", self.fallback)
        return super()._means(ensemble, members)

    def _mapped_means(self, ensemble: Ensemble, members: Sequence[int]) -> dict[Key, Float[Tensor, ""]]:
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        first = [first_block(ensemble, edits) for edits in self.edits.values()]
        means: dict[tuple[str, str, str], dict[str, Tensor]] = {}
        for split, (example, *_) in self._batches.items():
            tensors, axes = self._tensors[split]

            def measure(
                weights: Sequence[Mapping[str, Tensor]], tensors: dict[str, Any], example: Batch = example
            ) -> list[dict[str, Tensor]]:
                return self._measure_member(ensemble, weights, first, replace(example, **tensors))

            measured = torch.func.vmap(measure, in_dims=(0, axes))(variants, tensors)
            for (edit, each), group in product(zip(self.edits, measured, strict=True), self._stacked_shares[split]):
                shares = self._stacked_shares[split][group]
                means[edit, split, group] = {
                    metric: (values * shares).where(shares > 0, 0).sum((1, 2)) for metric, values in each.items()
                }
        return {
            Key(edit, member, split, group, metric): values[member]
            for edit, member, split in product(self.edits, members, self._batches)
            for group in self._shares[split][member]
            for metric, values in means[edit, split, group].items()
        }


def _stack_tensors(batches: Sequence[Batch], longest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors of one batch per member, stacked by name, and the axes over which to map them.

    Members with fewer sequences than others, or than `longest`, are padded with zeros, which do not count in any mean.
    """
    first = batches[0]
    names = [name for name in ("inputs", "targets", "answers", "weights", "group") if getattr(first, name) is not None]
    tensors: dict[str, Any] = {name: _stacked([getattr(one, name) for one in batches], longest) for name in names}
    axes: dict[str, Any] = dict.fromkeys(names, 0)
    shared = first.positions.ndim == 1
    tensors["positions"] = first.positions if shared else _stacked([one.positions for one in batches], longest)
    axes["positions"] = None if shared else 0
    tensors["rivals"] = {name: _stacked([one.rivals[name] for one in batches], longest) for name in first.rivals}
    axes["rivals"] = dict.fromkeys(first.rivals, 0)
    return tensors, axes


def _stack_shares(
    shares: Sequence[Mapping[str, Float[Tensor, "_ scored"]]], longest: int
) -> dict[str, Float[Tensor, "member longest scored"]]:
    """Return the shares of all members for each group; a member without sequences of a group has shares of 0."""
    groups = dict.fromkeys(group for each in shares for group in each)
    nothing = [torch.zeros_like(each["all"]) for each in shares]
    return {
        group: _stacked([each.get(group, none) for each, none in zip(shares, nothing, strict=True)], longest)
        for group in groups
    }


def _stacked(values: Sequence[Shaped[Tensor, "_ ..."]], longest: int) -> Shaped[Tensor, "member longest ..."]:
    first = values[0]
    nothing = first.new_zeros(longest, *first.shape[1:])
    return pad_sequence([*values, nothing], batch_first=True)[:-1]
