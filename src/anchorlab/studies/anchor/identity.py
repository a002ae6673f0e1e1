"""The identity anchor function: how much data a transformer needs, and how two layers solve it.

Source: anchor functions, sections 4.1 and 5.1, Figures 4 and 13; settings in its appendix A.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import (
    Claim,
    Findings,
    Line,
    LineFigure,
    Map,
    MapFigure,
    Provenance,
    Reference,
    Table,
    grid,
    line,
    numbers,
)
from anchorlab.lens import broadcast, broadcast_profile, look, shift, shift_profile
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import Batch, task
from anchorlab.training import Experiment, Members, Times, TrainedRun
from anchorlab.viewer.make import view_run

_PATTERNS = "blocks.*.attn.hook_pattern"
_LOOKED_AT = 500  # test sequences over which a head's numbers are averaged
_VIEW_TITLE = "Attention of two-layer models along training"

ENOUGH = 600
FEWEST = 200
PAPER_SIZES = (*range(200, 801, 50), *range(1000, 2601, 200))
"""The 22 train sizes of the results that the paper's code was published with."""

CLAIMS = (
    Claim(
        "anchor/identity/enough-data",
        f"With {ENOUGH} training sequences the transformer generalises",
        "anchor functions, section 4.1 and Fig 4",
        "about 1",
        f"test accuracy at {ENOUGH} training sequences, mean over seeds",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/identity/little-data",
        f"With {FEWEST} training sequences it does not: the curve of Fig 4 rises",
        "anchor functions, Fig 4",
        "no value in the text; the curve rises with data",
        f"test accuracy at {FEWEST} training sequences, mean over seeds; judged only where these are fitted",
        (None, 0.5),
    ),
    Claim(
        "anchor/identity/fits",
        "It fits its training sequences at every size",
        "anchor functions, Fig 3",
        "1",
        "lowest accuracy on the first 500 training sequences, over sizes and seeds",
        (0.99, None),
    ),
    Claim(
        "anchor/identity/shift-by-one",
        "Layer 1 shifts by one position",
        "anchor functions, section 5.1 and Fig 13a",
        "every position attends to the one before",
        "share of seeds whose layer 1 has a head that shifts best by exactly 1",
        (1.0, 1.0),
    ),
    Claim(
        "anchor/identity/shift-mass",
        "That shift holds most of the attention",
        "anchor functions, Fig 13a",
        "close to 1",
        "mean attention from each position to the one before, best head of layer 1, mean over seeds",
        (0.7, 1.0),
    ),
    Claim(
        "anchor/identity/broadcast-from-key",
        "Layer 2 broadcasts the position right after the anchor",
        "anchor functions, section 5.1 and Fig 13b",
        "the key's position",
        "share of seeds whose layer 2 has a head that broadcasts to the last position best from the key's",
        (1.0, 1.0),
    ),
    Claim(
        "anchor/identity/broadcast-mass",
        "That broadcast brings the key to the output position",
        "anchor functions, Fig 13b",
        "close to 1",
        "attention from the last position to the key's, best head of layer 2, mean over seeds",
        (0.9, 1.0),
    ),
)


def quick_experiments(
    sizes: Sequence[int] = (200, 300, 400, 500, 600, 1000, 2000), steps: int = 600, seeds: int = 10
) -> list[Experiment]:
    """Two layers of width 64 with one head, a fixed number of steps for every size; the largest size is last."""
    return [
        Experiment(
            task("anchor/identity"),
            quick_model(),
            quick_recipe(size, steps, checkpoints=8 if size == max(sizes) else None),
            Members(seeds=tuple(range(seeds))),
            label=f"identity, {size} sequences",
        )
        for size in sizes
    ]


def _paper() -> Profile:
    seeds = Members(seeds=tuple(range(10)))
    mechanism_every = Times(every=400)

    def experiments() -> list[Experiment]:
        identity = task("anchor/identity")
        curve = [
            Experiment(identity, DecoderSpec(), paper_recipe(size), seeds, f"identity, {size} sequences")
            for size in PAPER_SIZES
        ]
        recipe = paper_recipe(1000).replace(checkpoints=mechanism_every)
        two_layers = Experiment(
            identity, DecoderSpec(layers=2, heads=1), recipe, seeds, "identity, two layers of one head"
        )
        return [*curve, two_layers]

    return Profile(
        experiments,
        "Paper profile: the setting of appendix A and the reference code. The 22 train sizes are those of the results "
        "that the paper's code was published with: 200 to 800 by 50, and 1000 to 2600 by 200. The paper does not say "
        "on how many sequences the two-layer model was trained; here it is 1000. Nor does it give AdamW's weight "
        "decay; PyTorch's 0.01 is used.",
    )


@dataclass(frozen=True)
class Heads:
    """What the heads of a two-layer ensemble do on test sequences, each `[member]`, of the best head of its layer."""

    shift_head: Tensor
    shift_by: Tensor
    shift_mass: Tensor
    broadcast_head: Tensor
    broadcast_from: Tensor
    broadcast_mass: Tensor
    to_last: Tensor


def measure_heads(first: Tensor, second: Tensor, batch: Batch) -> Heads:
    """Which head of layer 1 shifts and by how much, which head of layer 2 broadcasts and from where.

    `first` and `second` are patterns `[member batch head query key]`; `broadcast_from` counts from the anchor.
    """
    shifts = shift_profile(first)
    shift_head = shift(first, 1).argmax(dim=-1)
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    sources = broadcast_profile(second, anchors, queries="last")
    to_last = broadcast(second, keys, queries="last")
    broadcast_head = to_last.argmax(dim=-1)
    return Heads(
        shift_head=shift_head,
        shift_by=_of(shifts.best, shift_head),
        shift_mass=_of(shift(first, 1), shift_head),
        broadcast_head=broadcast_head,
        broadcast_from=_of(sources.best, broadcast_head),
        broadcast_mass=_of(broadcast(second, keys), broadcast_head),
        to_last=_of(to_last, broadcast_head),
    )


def _of(values: Tensor, head: Tensor) -> Tensor:
    """`[member head]` at one head per member."""
    return values.gather(-1, head.unsqueeze(-1)).squeeze(-1)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The curve of Figure 4, and the maps and numbers of Figure 13 from the run of two layers."""
    two_layers = next(run for run in reversed(runs) if len(run.checkpoints) > 1)
    curve = [run for run in runs if run is not two_layers or run.experiment.model == runs[0].experiment.model]
    sizes = [run.experiment.recipe.data.size for run in curve]  # type: ignore[union-attr]
    accuracy = [at_end(run, "test", "accuracy") for run in curve]
    trained = [at_end(run, "train", "accuracy") for run in curve]
    at, fitted = dict(zip(sizes, accuracy, strict=True)), dict(zip(sizes, trained, strict=True))

    identity = two_layers.experiment.task
    batch = identity.sample("test", _LOOKED_AT, seed=0)
    record = look(two_layers.ensemble(), batch.inputs, record=[_PATTERNS])
    heads = measure_heads(record["blocks.0.attn.hook_pattern"], record["blocks.1.attn.hook_pattern"], batch)
    by_one, from_key = (heads.shift_by == 1).float(), (heads.broadcast_from == 1).float()
    measured: dict[str, Tensor | None] = {
        "enough-data": at.get(ENOUGH),
        "little-data": at.get(FEWEST) if float(fitted.get(FEWEST, torch.zeros(1)).mean()) >= 0.99 else None,
        "fits": torch.stack(trained).amin().reshape(1),
        "shift-by-one": by_one,
        "shift-mass": heads.shift_mass,
        "broadcast-from-key": from_key,
        "broadcast-mass": heads.to_last,
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary=f"Sequences of nine tokens hold the anchor 3 once, and the answer is the token after it. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(
            _curve_figure(sizes, accuracy),
            _learning_figure(curve, sizes),
            _map_figure(two_layers, batch),
        ),
        tables=(_size_table(sizes, accuracy, trained), _head_table(heads, two_layers)),
        views=(view_run(two_layers, steps=two_layers.checkpoints, title=_VIEW_TITLE),),
    )


def _curve_figure(sizes: Sequence[int], accuracy: Sequence[Tensor]) -> LineFigure:
    return LineFigure(
        title="Test accuracy against train size (Fig 4, transformer)",
        caption="Mean over seeds; the band reaches from the lowest to the highest. Test sequences hold a key at a "
        "position where training never shows it (modular residue).",
        x_label="training sequences",
        y_label="test accuracy",
        lines=(line("transformer", sizes, torch.stack(list(accuracy), dim=1)),),
        y_range=(0.0, 1.02),
        references=(Reference("the paper: about 1 by 600", float(ENOUGH), "x"),),
    )


def _learning_figure(runs: Sequence[TrainedRun], sizes: Sequence[int]) -> LineFigure:
    lines = []
    for run, size in zip(runs, sizes, strict=True):
        steps, values = along(run, "test", "accuracy")
        unit = run.experiment.steps_per_unit
        lines.append(Line(str(size), numbers([step / unit for step in steps]), numbers(values.mean(dim=0))))
    chosen = lines if len(lines) <= 8 else lines[:: max(1, len(lines) // 7)]
    return LineFigure(
        title="Test accuracy along training, by train size",
        caption="Mean over seeds.",
        x_label=runs[0].experiment.recipe.unit,
        y_label="test accuracy",
        lines=tuple(chosen),
        y_range=(0.0, 1.02),
    )


def _map_figure(run: TrainedRun, batch: Batch) -> MapFigure:
    """The two maps of Figure 13: one member's, on a sequence whose anchor stands in the middle as the paper's does."""
    middle = int((batch.latents["anchor_positions"][:, 0] == 4).nonzero()[0])
    inputs = batch.inputs[middle : middle + 1]
    record = look(run.ensemble().select([0]), inputs, record=[_PATTERNS])
    ticks = [token.text for token in run.experiment.task.render(inputs)[0].tokens]
    rows = []
    for layer, name in ((0, "layer 1"), (1, "layer 2")):
        pattern = record[f"blocks.{layer}.attn.hook_pattern"][0, 0]
        rows.append(
            [
                Map(name if len(pattern) == 1 else f"{name}, head {head}", grid(values), tuple(ticks), tuple(ticks))
                for head, values in enumerate(pattern)
            ]
        )
    maps = (tuple(m for row in rows for m in row),) if len(rows[0]) == 1 else tuple(map(tuple, rows))
    return MapFigure(
        title="Attention of a two-layer model (Fig 13)",
        caption="Seed 0 on one test sequence. In the paper, each position attends to the one before in layer 1 "
        "(shift), and in layer 2 the last position reads the key right after the anchor 3 (broadcast).",
        maps=maps,
        value_range=(0.0, 1.0),
    )


def _size_table(sizes: Sequence[int], accuracy: Sequence[Tensor], trained: Sequence[Tensor]) -> Table:
    return Table(
        title="Accuracy by train size",
        caption="Over seeds, at the end of training; train accuracy on the first 500 training sequences.",
        columns=("training sequences", "test mean", "test lowest", "test highest", "train mean"),
        rows=tuple(
            (size, float(test.mean()), float(test.min()), float(test.max()), float(train.mean()))
            for size, test, train in zip(sizes, accuracy, trained, strict=True)
        ),
    )


def _head_table(heads: Heads, run: TrainedRun) -> Table:
    rows = [
        (
            seed,
            int(heads.shift_head[index]),
            int(heads.shift_by[index]),
            float(heads.shift_mass[index]),
            int(heads.broadcast_head[index]),
            int(heads.broadcast_from[index]),
            float(heads.to_last[index]),
            float(heads.broadcast_mass[index]),
        )
        for index, seed in enumerate(run.experiment.members.seeds)
    ]
    return Table(
        title="What the two layers do, seed by seed",
        caption=f"On {_LOOKED_AT} test sequences. Shifts count positions back; sources count positions after the "
        "anchor, so that 1 is the key's.",
        columns=(
            "seed",
            "shifting head",
            "shifts by",
            "shift mass",
            "broadcasting head",
            "from anchor +",
            "key to last position",
            "key to all later positions",
        ),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/identity",
    title="The identity anchor function: data needed, and the two heads that solve it",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: two layers of one head, width 64 (0.1 M parameters), 600 steps of batch 50 at every size "
            "with learning rate 6e-3 and weight decay 0.3. The paper trains four layers of four heads, width 400 "
            "(5.65 M parameters), for 4000 epochs at up to 2e-4. The same models serve both figures.",
        ),
        "paper": _paper(),
        "smoke": Profile(
            lambda: quick_experiments(sizes=(200, 1000), steps=40, seeds=2),
            "Smoke profile: it only exercises the code.",
        ),
    },
    analyse=analyse,
)
