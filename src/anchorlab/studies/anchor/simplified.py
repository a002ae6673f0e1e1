"""The simplified model, two attention products and nothing else: how it solves the identity anchor function.

Source: anchor functions, section 5.4, Figure 16.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, Map, MapFigure, Provenance, Table, grid
from anchorlab.lens import cosine_similarity, look
from anchorlab.studies.anchor import structures
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import Batch
from anchorlab.training import TrainedRun

LEARNED = 0.9
"""A seed is judged once its test accuracy is at least this: the paper explains a model that generalises."""

_LOOKED_AT = 500
_FIRST, _ROWS, _SECOND = "blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre", "blocks.1.attn.hook_pattern"
_SOURCE = "anchor functions, section 5.4 and Fig 16"
_SEEDS = f"mean over seeds with a test accuracy of at least {LEARNED:g}"

CLAIMS = (
    Claim(
        "anchor/simplified/generalises",
        "Two attention products and nothing else generalise",
        "anchor functions, section 5.3 and Fig 15, none",
        "can be 100 %, with large fluctuation",
        "test accuracy, highest over seeds",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/simplified/carries",
        "The product of both attentions carries the key to the end",
        _SOURCE,
        "all output vectors become the key's",
        f"entry of Attn2 Attn1 from the last position to the key's, over test sequences, {_SEEDS}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/simplified/shift",
        "The first attention brings the key to the anchor's position",
        _SOURCE,
        "shifts the key to the anchor",
        f"attention of layer 1 from the anchor's position to the key's, {_SEEDS}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/simplified/broadcast",
        "It brings the anchor to all other positions",
        _SOURCE,
        "broadcasts the anchor to other locations",
        f"attention of layer 1 from the other positions to the anchor's, their mean, {_SEEDS}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/simplified/alike",
        "So that the second layer gets just two kinds of rows: those without the key are alike",
        _SOURCE,
        "only two types of rows",
        f"cosine similarity between rows other than the anchor's, mean over pairs, {_SEEDS}",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/simplified/other",
        "The row at the anchor's position is of the other kind",
        _SOURCE,
        "only two types of rows",
        f"cosine similarity between the anchor's row and the others, mean over these, {_SEEDS}",
        (None, 0.5),
    ),
    Claim(
        "anchor/simplified/second-broadcast",
        "The second attention brings the row that holds the key to all positions",
        _SOURCE,
        "broadcasts it to all locations",
        f"attention of layer 2 to the anchor's position, mean over all rows, {_SEEDS}",
        (0.8, 1.0),
    ),
)


@dataclass(frozen=True)
class Mechanism:
    """What a simplified model does on test sequences, each `[member]`; the names are those of the claims."""

    carries: Tensor
    shift: Tensor
    broadcast: Tensor
    alike: Tensor
    other: Tensor
    second_broadcast: Tensor


def measure(first: Tensor, rows: Tensor, second: Tensor, batch: Batch) -> Mechanism:
    """The numbers of Figure 16 from patterns `[member batch query key]` of both layers and the rows between them.

    `rows` are what the second layer gets, `[member batch position width]`.
    """
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    each, length = torch.arange(len(anchors)), first.shape[-1]
    others = torch.arange(length) != anchors.unsqueeze(-1)  # [batch position]
    to_anchor = first[:, each, :, anchors].movedim(0, 1)  # [member batch query]
    similarity = cosine_similarity(rows, rows)
    pairs = others.unsqueeze(-1) & others.unsqueeze(-2) & ~torch.eye(length, dtype=torch.bool)
    return Mechanism(
        carries=(second @ first)[:, each, -1, keys].mean(dim=-1),
        shift=first[:, each, anchors, keys].mean(dim=-1),
        broadcast=_mean_where(to_anchor, others),
        alike=_mean_where(similarity, pairs),
        other=_mean_where(similarity[:, each, anchors], others),
        second_broadcast=second[:, each, :, anchors].mean(dim=(0, 2)),
    )


def _mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    """The mean over the chosen places of `[member ...]`, the choice being the same for all members: `[member]`."""
    return values[:, chosen].mean(dim=-1)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """What both attentions do, seed by seed, and the maps of the seed that generalises best."""
    (run,) = runs
    batch = run.experiment.task.sample("test", _LOOKED_AT, seed=0)
    record = look(run.ensemble(), batch.inputs, record=[_FIRST, _ROWS, _SECOND])
    found = measure(record[_FIRST][:, :, 0], record[_ROWS], record[_SECOND][:, :, 0], batch)
    accuracy = at_end(run, "test", "accuracy")
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="A model of two layers without mask, layer norm, residual connection, linear map and feed-forward "
        "network: X_out = Attn2 Attn1 X W1 W2. The answer is the token after the anchor 3. " + note,
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, _measured(accuracy, found), provenance.profile),
        figures=(_figure(run, batch, int(accuracy.argmax())),),
        tables=(_table(run, accuracy, found),),
    )


def _measured(accuracy: Tensor, found: Mechanism) -> dict[str, Tensor | None]:
    learned = accuracy >= LEARNED

    def of(values: Tensor) -> Tensor | None:
        return values[learned] if bool(learned.any()) else None

    return {
        "generalises": accuracy.max().reshape(1),
        "carries": of(found.carries),
        "shift": of(found.shift),
        "broadcast": of(found.broadcast),
        "alike": of(found.alike),
        "other": of(found.other),
        "second-broadcast": of(found.second_broadcast),
    }


def _figure(run: TrainedRun, batch: Batch, member: int) -> MapFigure:
    middle = int((batch.latents["anchor_positions"][:, 0] == 4).nonzero()[0])
    inputs = batch.inputs[middle : middle + 1]
    ticks = tuple(token.text for token in run.experiment.task.render(inputs)[0].tokens)
    record = look(run.ensemble().select([member]), inputs, record=[_FIRST, _SECOND])
    first, second = record[_FIRST][0, 0, 0], record[_SECOND][0, 0, 0]
    shown = (("Attn1", first), ("Attn2", second), ("Attn2 Attn1", second @ first))
    return MapFigure(
        title="Both attentions of a simplified model and their product (Fig 16)",
        caption=f"Seed {run.experiment.members.seeds[member]}, the best in test, on one test sequence. In the paper "
        "the first brings the key to the anchor's position and the anchor to all others, the second the anchor's "
        "position, which holds the key by then, to all; their product reads the key everywhere.",
        maps=(tuple(Map(title, grid(values), ticks, ticks) for title, values in shown),),
        value_range=(0.0, 1.0),
    )


def _table(run: TrainedRun, accuracy: Tensor, found: Mechanism) -> Table:
    measured = (
        accuracy, found.carries, found.shift, found.broadcast, found.alike, found.other, found.second_broadcast
    )  # fmt: skip
    return Table(
        title="What the simplified model does, seed by seed",
        caption=f"On {_LOOKED_AT} test sequences. Attention from row to column position; similarity of the rows that "
        "the second layer gets.",
        columns=(
            "seed",
            "test accuracy",
            "product, last to key",
            "Attn1, anchor to key",
            "Attn1, others to anchor",
            "similarity of the others",
            "similarity to the anchor's",
            "Attn2, all to anchor",
        ),
        rows=tuple(
            (seed, *(float(values[index]) for values in measured))
            for index, seed in enumerate(run.experiment.members.seeds)
        ),
    )


STUDY = Study(
    name="anchor/simplified",
    title="The simplified model: two attention products carry the key to the end",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            lambda: structures.quick_experiments([structures.NONE], steps=2400),
            "Quick profile: the paper's structure, all of whose sizes are the vocabulary's 201; 2400 steps of batch 50 "
            "on 2000 sequences with learning rate 2e-3 and weight decay 0.3, five seeds. The paper trains for 4000 "
            "epochs at up to 2e-4.",
        ),
        "paper": Profile(
            lambda: structures.paper_experiments([structures.NONE]),
            "Paper profile: all sizes 201, 4000 epochs, five seeds. The paper does not say how many sequences the "
            "model was trained on: 2000.",
        ),
        "smoke": Profile(
            lambda: structures.quick_experiments([structures.NONE], steps=2, seeds=2),
            "Smoke profile: two steps, for tests.",
        ),
    },
    analyse=analyse,
)
