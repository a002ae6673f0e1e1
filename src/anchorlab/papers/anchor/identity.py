"""The identity anchor function: data needed, and the two heads that solve it.

Sequences of nine tokens hold the anchor 3 once, and the answer is the token after it.

Source: anchor functions, sections 4.1 and 5.1, Figures 4 and 13; settings in its appendix A.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, MapFigure, Reference, Table, at_least, at_most, line
from anchorlab.findings.view import AttentionView
from anchorlab.lens import Record, broadcast, broadcast_profile, look, shift, shift_profile
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, mirrored, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, kit, quick_model, quick_recipe, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.tasks import Batch, Task, task
from anchorlab.training import Experiment, Times, TrainedRun
from anchorlab.viewer.make import view_run

ENOUGH, FEWEST = 600, 200  # training sequences
FITTED = 0.99  # training accuracy
LOOKED_AT = 500  # test sequences over which a head's numbers are averaged
FIGURE_13 = DecoderSpec(layers=2, heads=1, head_width=64)  # the paper's model whose heads are looked at
PATTERNS = ("blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern")

PAPER_SIZES = (*range(200, 801, 50), *range(1000, 2601, 200))
"""The 22 train sizes of the results that the paper's code was published with."""


@dataclass(frozen=True)
class Sizes:
    """A transformer with the train sizes of its curve, and the two-layer model whose heads are studied.

    If both are one model, its run is also the curve's last point. Without a two-layer model only the curve is trained.
    """

    transformer: Setting
    sizes: tuple[int, ...]
    two_layers: Setting | None

    def shortened(self, steps: int, sizes: tuple[int, int]) -> "Sizes":
        """Return the setting with two seeds and few steps, on two train sizes; for smoke profiles."""
        last = self.two_layers and self.two_layers.shortened(steps, size=sizes[1])
        return Sizes(self.transformer.shortened(steps), sizes[:1], last)


_SMALL = Setting(quick_model(), quick_recipe(2000), seeds=10)
_FULL = Setting(DecoderSpec(), paper_recipe(1000), seeds=10)
_KEPT = _FULL.recipe.replace(checkpoints=Times(every=400))

TWO_LAYERS = replace(_SMALL, recipe=quick_recipe(2000, checkpoints=8), seeds=30)
"""The quick model whose heads are looked at, here and in other studies."""

QUICK = Sizes(_SMALL, (200, 300, 400, 500, 600, 1000), TWO_LAYERS)
PAPER_TWO_LAYERS = replace(_FULL, model=FIGURE_13, recipe=_KEPT)
PAPER = Sizes(_FULL, PAPER_SIZES, PAPER_TWO_LAYERS)


def experiment(setting: Setting) -> Experiment:
    """Return the experiment that trains a setting on the identity function, labelled by its train size."""
    label = "two layers of one head" if setting.model == FIGURE_13 else f"{setting.size} sequences"
    return setting.experiment(task("anchor/identity"), f"identity, {label}")


def experiments(setting: Sizes) -> dict[str, Experiment]:
    """Return the experiments of the curve by rising train size, then the experiment of the two-layer model."""
    every = [setting.transformer.on(size) for size in setting.sizes]
    every += [] if setting.two_layers is None else [setting.two_layers]
    return {one.label: one for one in map(experiment, every)}


def other_task(experiment: Experiment) -> Task | None:
    """Return the mirrored task of the one experiment that keeps checkpoints, to study heads; None for others."""
    return mirrored(experiment) if experiment.recipe.checkpoints.every else None


@dataclass(frozen=True)
class Curve:
    """A learner's accuracies at the end of training, by rising train size."""

    sizes: tuple[int, ...]
    test: Float[Tensor, "size member"]
    train: Float[Tensor, "size member"]

    def at(self, size: int) -> Float[Tensor, "member"] | None:
        """Return the test accuracies at one train size; None if the learner was not trained at that size."""
        return self.test[self.sizes.index(size)] if size in self.sizes else None


def read_curve(runs: Iterable[TrainedRun]) -> Curve:
    """Read a learner's curve from its runs, in any order; members beyond the smallest run's number are left out."""
    ordered = sorted(runs, key=kit.train_size)
    count = min(len(run.experiment.members) for run in ordered)
    test, train = (
        torch.stack([kit.at_end(run, split, "accuracy")[:count] for run in ordered]) for split in ("test", "train")
    )
    return Curve(tuple(map(kit.train_size, ordered)), test, train)


@dataclass(frozen=True)
class Heads:
    """The shift and broadcast of the best head of each layer, on test sequences."""

    shift_head: Int[Tensor, "member"]  # the head of layer 0 that attends most to the previous position
    shift_by: Int[Tensor, "member"]  # how many positions back it attends most
    shift_mass: Float[Tensor, "member"]  # its attention to the previous position
    broadcast_head: Int[Tensor, "member"]  # the head of layer 1 whose last position attends most to the key's
    broadcast_from: Int[Tensor, "member"]  # where its last position attends most, counted from the anchor
    to_last: Float[Tensor, "member"]  # its attention from the last position to the key's
    broadcast_mass: Float[Tensor, "member"]  # its attention to the key's position, mean over positions from there on


def read_heads(record: Record, batch: Batch) -> Heads:
    """Read which head of layer 0 shifts and by how much, and which head of layer 1 broadcasts and from where.

    The record holds the patterns `[member batch head query key]` of both layers.
    """
    first, second = (record[site] for site in PATTERNS)
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    by_one, to_last = shift(first, 1), broadcast(second, keys, queries="last")
    shifts, broadcasts, each = by_one.argmax(dim=-1), to_last.argmax(dim=-1), torch.arange(len(first))
    return Heads(
        shift_head=shifts,
        shift_by=shift_profile(first).best[each, shifts],
        shift_mass=by_one[each, shifts],
        broadcast_head=broadcasts,
        broadcast_from=broadcast_profile(second, anchors, queries="last").best[each, broadcasts],
        to_last=to_last[each, broadcasts],
        broadcast_mass=broadcast(second, keys)[each, broadcasts],
    )


class Seen(Reading):
    """The transformer's curve, and the heads of the two-layer model if it was trained."""

    heads = reading(lambda seen: heads_of(seen.last))  # None unless the last run's model is a decoder of two layers
    curve = reading(lambda seen: read_curve(seen.of_curve))  # the transformer's accuracies by train size

    @property
    def of_curve(self) -> list[TrainedRun]:
        """The runs of the curve, which have the same model as the first run."""
        return [run for run in self.runs.values() if run.experiment.model == self.first.experiment.model]


def heads_of(run: TrainedRun) -> Heads | None:
    """Read the heads at the end of a run of a two-layer decoder; None for other runs."""
    model = run.experiment.model
    if not isinstance(model, DecoderSpec) or model.layers != FIGURE_13.layers:
        return None
    return kit.read(run, Heads, _heads_at_end)


def _heads_at_end(run: TrainedRun) -> Heads:
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)
    return read_heads(look(run.ensemble(), batch.inputs, record=PATTERNS), batch)


@claim("section 4.1 and Fig 4", "about 1", at_least(0.9))
def enough_data(seen: Seen) -> Float[Tensor, "seed"] | None:
    """With {ENOUGH} training sequences the transformer generalises.

    Test accuracy at {ENOUGH} training sequences, mean over seeds.
    """
    return seen.curve.at(ENOUGH)


@claim("Fig 4", "no value in the text; the curve rises with data", at_most(0.5))
def little_data(seen: Seen) -> Float[Tensor, "seed"] | None:
    """With {FEWEST} training sequences a transformer does not generalise: the curve of Fig 4 rises.

    Test accuracy at {FEWEST} training sequences, mean over seeds; judged only if training is fitted.
    """
    return seen.curve.at(FEWEST)


@precondition("Fig 3", "1", at_least(FITTED), of=("enough-data", "little-data"))
def fits(seen: Seen) -> Measurement:
    """A transformer fits its training sequences at every train size.

    Lowest accuracy on the first 500 training sequences, over sizes and seeds.
    """
    return over(seen.curve.train.amin(dim=0), taken=torch.min)


@claim("section 5.1 and Fig 13a", "every position attends to the one before", at_least(0.8))
def shift_by_one(seen: Seen) -> Bool[Tensor, "seed"] | None:
    """Layer 0 shifts by one position.

    Share of seeds with a head in layer 0 whose strongest shift is by exactly 1.
    """
    return None if seen.heads is None else seen.heads.shift_by == 1


@claim("Fig 13a", "close to 1", at_least(0.7))
def shift_mass(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The shift of layer 0 by one position holds most of its attention.

    Attention from a position to the one before, best head of layer 0, mean over positions and seeds.
    """
    return None if seen.heads is None else seen.heads.shift_mass


@claim("section 5.1 and Fig 13b", "the key's position", at_least(0.8))
def broadcast_from_key(seen: Seen) -> Bool[Tensor, "seed"] | None:
    """Layer 1 broadcasts the position right after the anchor.

    Share of seeds with a head in layer 1 through which the last position attends most to the key's.
    """
    return None if seen.heads is None else seen.heads.broadcast_from == 1


@claim("Fig 13b", "close to 1", at_least(0.9))
def broadcast_mass(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The broadcast of layer 1 brings the key to the output position.

    Attention from the last position to the key's, best head of layer 1, mean over seeds.
    """
    return None if seen.heads is None else seen.heads.to_last


def _against_size(seen: Seen) -> LineFigure:
    title = "Test accuracy against train size (Fig 4, transformer)"
    return size_figure(title, {"transformer": seen.curve}, "the paper: about 1 by 600")


def _along_training(seen: Seen) -> LineFigure:
    shown = seen.of_curve if len(seen.of_curve) <= 8 else seen.of_curve[:: len(seen.of_curve) // 7]
    return kit.training_curves(
        "Test accuracy along training, by train size",
        {str(kit.train_size(one)): one for one in shown},
        "test",
        caption="Mean over seeds.",
        bands=False,
    )


def size_figure(title: str, curves: Mapping[str, Curve], reference: str, caption: str = "") -> LineFigure:
    """Return the figure of test accuracy against train size by learner; `reference` labels the paper's train size."""
    return LineFigure(
        title=title,
        caption=f"{caption}{kit.MEAN_AND_RANGE} Test sequences hold a key at a position where training never shows it "
        "(modular residue).",
        x_label="training sequences",
        y_label="test accuracy",
        lines=tuple(line(name, curve.sizes, curve.test.T) for name, curve in curves.items()),
        y_range=kit.ACCURACY,
        references=(Reference(reference, ENOUGH, "x"),),
    )


SIZE_CAPTION = "Over seeds, at the end of training; train accuracy on the first 500 training sequences."
SIZE_COLUMNS = ("training sequences", "test mean", "test lowest", "test highest", "train mean")


def size_rows(curve: Curve, *begin: str) -> tuple[tuple[str | float, ...], ...]:
    """Return a table row for each train size: the cells `begin`, then those of `SIZE_COLUMNS`."""
    values = zip(curve.sizes, curve.test, curve.train, strict=True)
    return tuple((*begin, size, *kit.mean_and_range(test), float(train.mean())) for size, test, train in values)


def _by_size(seen: Seen) -> Table:
    return Table("Accuracy by train size", SIZE_CAPTION, SIZE_COLUMNS, size_rows(seen.curve))


def _maps(seen: Seen) -> MapFigure | None:
    run = seen.last
    if seen.heads is None or not run.has_weights:
        return None
    function = run.experiment.task
    batch = function.sample("test", LOOKED_AT, seed=0)
    place, ticks = kit.example(
        function, batch, batch.latents["anchor_positions"][:, 0] == 4
    )  # as in the paper's figure
    record = look(run.ensemble().select([0]), batch.inputs[[place]], record=PATTERNS)
    seed = run.experiment.members.seeds[0]
    return kit.attention_maps(
        "Attention of a two-layer model (Fig 13)",
        {f"layer {layer}": record[site][0, 0, 0] for layer, site in enumerate(PATTERNS)},
        ticks,
        caption=f"Seed {seed} on one test sequence. In the paper, each position attends to the one before in layer 0 "
        "(shift), and in layer 1 the last position reads the key right after the anchor 3 (broadcast).",
        seed=seed,
    )


def _heads(seen: Seen) -> Table | None:
    heads, seeds = seen.heads, seen.last.experiment.members.seeds
    if heads is None:
        return None
    return kit.seed_table(
        "What the two layers do, seed by seed",
        f"On {LOOKED_AT} test sequences. Shifts count positions back; sources count positions after the anchor, so "
        "that 1 is the key's.",
        seeds,
        {
            "shifting head": heads.shift_head,
            "shifts by": heads.shift_by,
            "shift mass": heads.shift_mass,
            "broadcasting head": heads.broadcast_head,
            "from anchor +": heads.broadcast_from,
            "key to last position": heads.to_last,
            "key to all later positions": heads.broadcast_mass,
        },
    )


def _view(seen: Seen) -> AttentionView | None:
    if seen.heads is None or not seen.last.has_weights:
        return None
    return view_run(seen.last, steps=seen.last.checkpoints, title="Attention of two-layer models along training")


STUDY = Study(
    "anchor/identity",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_against_size, _along_training, _maps, _by_size, _heads, _view),
    profiles={
        "quick": Profile(QUICK, "The same models serve both figures."),
        "paper": Profile(
            PAPER,
            "The setting of appendix A and the authors' code. The train sizes are those of the results that the "
            "paper's code was published with: 200 to 800 by 50, and 1000 to 2600 by 200. The paper does not say on "
            "how many sequences the two-layer model was trained; here it is 1000. The published curves come from the "
            f"authors' logs. {BATCH_NOTE}",
            paper=("enough-data", "little-data", "fits"),
        ),
        "paper-600": Profile(
            Sizes(_FULL, (FEWEST, ENOUGH), two_layers=None),
            f"The two train sizes that the claims on Figure 4 are about; heads are not studied. {BATCH_NOTE}",
            paper=("enough-data", "little-data", "fits"),
        ),
    },
    smoke=QUICK.shortened(steps=4, sizes=(200, 1000)),
    chosen_on=SEARCHED,
    other_task=other_task,
    keeps=lambda run, setting: heads_of(run),
)
