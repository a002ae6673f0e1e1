"""How a model reads: where its heads attend, its answers without some of that attention, and its errors.

A text of pairs (a1, x1, ..., a4, x4) is followed by the question a, which repeats one anchor, a_k; the answer is x_k.

Source: anchor functions, section 4.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from anchorlab import lens
from anchorlab.lens.effects.effects import Metric
from anchorlab.papers.anchor.settings import ITEMS
from anchorlab.studies.kit import read
from anchorlab.studies.readings import Reading, first_at_end, of_first, reading
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, TrainedRun

KINDS = ("the right item", "another item of the text", "an item outside it", "no item")
"""What an answer can be."""

WHOLE = "nothing"
FUSED, OTHER_FUSED = "asked item to its anchor", "another item to its anchor"
READ, OTHER_READ = "question to asked item", "question to another item"
MATCHED = "question to the same anchor"
CUTS = (WHOLE, FUSED, OTHER_FUSED, READ, OTHER_READ, MATCHED)
"""What is cut in every head: nothing, or the attention from one position to another."""

LOOKED_AT = 500  # test sequences
LEARNED = 0.9  # a member with at least this test accuracy has learned the task
PATTERNS = "blocks.*.attn.hook_pattern"

PerMember = Float[Tensor, "member"]


def places(batch: Batch) -> tuple[Int[Tensor, "batch pair"], Int[Tensor, "batch pair"]]:
    """Return the positions of each text's anchors and items, the asked pair first; after the last pair, the first."""
    anchors, items = (batch.latents[f"{role}_positions"] for role in ("anchor", "key"))
    order = (batch.latents["rule"].unsqueeze(-1) + torch.arange(items.shape[1])) % items.shape[1]
    return anchors.gather(1, order), items.gather(1, order)


def asked_first(batch: Batch) -> Int[Tensor, "batch pair"]:
    """Return each text's items, the asked one first."""
    return batch.inputs.gather(1, places(batch)[1])


@dataclass(frozen=True)
class Heads:
    """Where heads attend on test sequences. Layers above layer 0 are `later`."""

    to_anchor: Float[Tensor, "member head"]  # layer 0, from the asked item to its anchor
    shifts: Int[Tensor, "member head"]  # layer 0, the shift with the most attention
    to_item: Float[Tensor, "member later head"]  # from the question to the asked item
    to_match: Float[Tensor, "member later head"]  # from the question to the same anchor in the text
    sources: Int[Tensor, "member later head"]  # where the question attends most, counted from its anchor in the text

    @property
    def shifting(self) -> Int[Tensor, "member"]:
        """The head of layer 0 that attends most from the asked item to its anchor."""
        return self.to_anchor.argmax(dim=-1)

    @property
    def reading(self) -> tuple[Int[Tensor, "member"], Int[Tensor, "member"]]:
        """The layer, counted from layer 1, and the head that attend most to the asked item."""
        best = self.to_item.flatten(1).argmax(dim=-1)
        return best // self.to_item.shape[-1], best % self.to_item.shape[-1]


def read_heads(pattern: Float[Tensor, "member layer batch head query key"], batch: Batch) -> Heads:
    """Measure where heads attend; in test sequences only the question's anchor occurs twice."""
    first, later, (anchors, items) = pattern[:, 0], pattern[:, 1:], places(batch)
    return Heads(
        to_anchor=lens.broadcast(first, anchors[:, 0], queries="last", lengths=items[:, 0] + 1),
        shifts=lens.shift_profile(first).best,
        to_item=lens.induction(later, batch.inputs),
        to_match=lens.matching(later, batch.inputs),
        sources=lens.broadcast_profile(later, anchors[:, 0], queries="last").best,
    )


def kinds(answers: Int[Tensor, "*lead"], items: Int[Tensor, "*text pair"]) -> Int[Tensor, "*lead"]:
    """Return the index in `KINDS` of each answer; `items` holds the right item of each text first."""
    same = answers.unsqueeze(-1) == items
    outside = torch.where((answers >= ITEMS.start) & (answers < ITEMS.stop), 2, 3)
    return torch.where(same[..., 0], 0, torch.where(same.any(dim=-1), 1, outside))


def _shares(output: Float[Tensor, "*lead batch scored output"], batch: Batch) -> Float[Tensor, "*lead kind"]:
    found = kinds(output[..., 0, :].argmax(dim=-1), asked_first(batch))
    return one_hot(found, len(KINDS)).float().mean(dim=-2)


@dataclass(frozen=True)
class Answers:
    """Shares of the answers to test sequences by `KINDS`, with all attention, and with some attention or heads removed.

    `cut` has the shares without each kind of attention, by its name in `CUTS`. Heads are removed one at a time: their
    output is replaced by its mean over sequences at each position.
    """

    cut: Mapping[str, Float[Tensor, "member kind"]]
    without_head: Float[Tensor, "member layer head kind"]

    def lost(self, name: str) -> PerMember:
        """Return the accuracy lost without the attention of this name."""
        return (self.cut[WHOLE] - self.cut[name])[:, 0]


def take_away(ensemble: Ensemble, batch: Batch, patterns: Sequence[str]) -> Answers:
    """Measure the answers without some attention, removed at the sites of all `patterns`, and without each head."""
    last = torch.full((len(batch),), batch.inputs.shape[1] - 1)
    (anchor, other_anchor), (item, other_item) = (positions[:, :2].unbind(dim=1) for positions in places(batch))
    paths = {
        FUSED: (item, anchor),
        OTHER_FUSED: (other_item, other_anchor),
        READ: (last, item),
        OTHER_READ: (last, other_item),
        MATCHED: (last, anchor),
    }
    cuts = {
        name: [
            lens.Intervention(site=site, at={"query": query, "key": key}, rule="zero", may_do_nothing=True)
            for site in patterns
        ]
        for name, (query, key) in paths.items()
    }
    outputs = lens.look(ensemble, batch.inputs, candidates={WHOLE: [], **cuts}, positions=batch.positions)
    found = _shares(outputs["output"], batch)
    metrics = {name: _metric(kind) for kind, name in enumerate(KINDS)}
    left_out = lens.Intervention(site="blocks.*.attn.hook_z", rule="mean")
    heads = lens.effects(
        ensemble, batch.inputs, asked_first(batch).unsqueeze(1), left_out, over=["head"], metrics=metrics
    )
    return Answers(dict(zip(CUTS, found.unbind(dim=1), strict=True)), heads.values.movedim(0, -1).float())


def _metric(kind: int) -> Metric:
    return lambda output, items: kinds(output.argmax(dim=-1), items) == kind


def heads_of(run: TrainedRun) -> Heads:
    """Read where heads attend at the end of a run."""
    return read(run, Heads, lambda one: read_heads(_patterns(one)[1], _sequences(one)))


def _sequences(run: TrainedRun) -> Batch:
    return run.experiment.task.sample("test", LOOKED_AT, seed=0)


def _patterns(run: TrainedRun) -> tuple[list[str], Float[Tensor, "member layer batch head query key"]]:
    """Return the sites of all attention patterns, and the patterns at the end."""
    record = lens.look(run.ensemble(), _sequences(run).inputs, record=[PATTERNS], output=False)
    return list(record), torch.stack([record[site] for site in record], dim=1)


def answers_of(run: TrainedRun) -> Answers:
    """Read the answers at the end of a run: in full, and with some attention or one head removed."""
    measured = cache(lambda: take_away(run.ensemble(), _sequences(run), _patterns(run)[0]))
    cut = run.reading(
        "answers without attention", lambda _: torch.stack([measured().cut[name] for name in CUTS], dim=1)
    )
    heads = run.reading("answers without a head", lambda _: measured().without_head)
    return Answers(dict(zip(CUTS, cut.unbind(dim=1), strict=True)), heads)


def answers_along(run: TrainedRun) -> lens.Emergence:
    """Read the shares of the answers by `KINDS` at every checkpoint of a run."""
    shares = run.reading("answers along", _along)
    steps = tuple(run.checkpoints or run.experiment.steps_at(run.experiment.recipe.checkpoints))
    return lens.Emergence(steps, dict(zip(KINDS, shares.unbind(dim=-1), strict=True)))


def _along(run: TrainedRun) -> Float[Tensor, "member checkpoint kind"]:
    batch = _sequences(run)

    def answers(of: Ensemble) -> dict[str, PerMember]:
        shares = _shares(lens.look(of, batch.inputs, positions=batch.positions)["output"], batch)
        return dict(zip(KINDS, shares.unbind(dim=-1), strict=True))

    found = lens.emergence(run, answers)
    return torch.stack([found.values[name] for name in KINDS], dim=-1)


class Seen(Reading):
    """What was learned, through which heads, and which answers are given along training."""

    train = first_at_end("train", "accuracy")
    test = first_at_end("test", "accuracy")
    heads = of_first(heads_of)
    answers = of_first(answers_of)
    along = of_first(answers_along)
    learned = reading(lambda seen: seen.test >= LEARNED)  # which members learned the task
