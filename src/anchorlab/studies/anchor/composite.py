"""The composite anchor function: learned operations, mapping sequences and depth.

Two of four anchors follow a key, and the answer is the key under both operations in turn. One of 16 ordered pairs,
(3, 4), is never trained.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, at_most, within
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.composite_outputs import ADDS, Outputs, see_outputs
from anchorlab.studies.anchor.settings import Setting, paper_recipe, quick_model, quick_recipe
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, along, at_end, column_table, curves_against, split_curves
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

TRAIN, DATA, TASK = "train", "test on data", "test on task"
SPLITS = {TRAIN: "training", DATA: DATA, TASK: TASK}  # with their names in figures
REACHED = 0.9  # the accuracy above which a split counts as answered


@dataclass(frozen=True)
class Depths(Setting):
    """A setting whose model is trained with several numbers of layers, the smallest first."""

    depths: tuple[int, ...] = ()


QUICK = Depths(
    quick_model(),
    quick_recipe(8000, steps=1600, batch=100, learning_rate=2e-3, evaluations=20),
    seeds=3,
    depths=(2, 4, 10),
)
PAPER = Depths(DecoderSpec(), paper_recipe(8000, batch=100, every=20), seeds=5, depths=tuple(range(2, 11)))


def experiments(setting: Depths) -> list[Experiment]:
    """Return an experiment for each depth."""
    return [
        replace(setting, model=setting.model.replace(layers=depth)).experiment(
            task("anchor/composite"), f"composite, {depth} layers"
        )
        for depth in setting.depths
    ]


@dataclass(frozen=True)
class Depth:
    """What models of one depth do, by split; `steps` is the length of their training."""

    layers: int
    steps: int
    accuracy: Mapping[str, Float[Tensor, "member"]]  # at the end
    reached: Mapping[str, Float[Tensor, "member"]]  # the step first measured above `REACHED`, infinite for never
    outputs: Outputs


def see(run: TrainedRun, layers: int) -> Depth:
    """Read accuracies and outputs from the run of one depth."""
    return Depth(
        layers,
        run.experiment.steps,
        {split: at_end(run, split, "accuracy") for split in SPLITS},
        {split: first_reached(*along(run, split, "accuracy")) for split in SPLITS},
        see_outputs(run),
    )


def first_reached(steps: Sequence[int], values: Float[Tensor, "member step"]) -> Float[Tensor, "member"]:
    """Return the first of the steps at which values are above `REACHED`; infinite where they never are."""
    above = values > REACHED
    first = torch.tensor(steps, dtype=torch.float32)[above.int().argmax(dim=1)]
    return first.where(above.any(dim=1), torch.tensor(torch.inf))


def _accuracy(seen: Sequence[Depth], split: str) -> Float[Tensor, "depth member"]:
    return torch.stack([depth.accuracy[split] for depth in seen])


def _reached(seen: Sequence[Depth], split: str) -> Float[Tensor, "run"]:
    return torch.cat([depth.reached[split] for depth in seen])


def _lowest_mean(values: Float[Tensor, "depth member"]) -> Float[Tensor, "member"]:
    return values[int(values.mean(dim=1).argmin())]


def _learned(seen: Sequence[Depth]) -> bool:
    """Return whether the smallest and the largest depth learned the trained pairs; outputs are judged only then."""
    return bool((_accuracy((seen[0], seen[-1]), DATA).mean(dim=1) > REACHED).all())


@claim(
    "At every depth the trained pairs are answered on keys at unseen positions",
    at="section 4.4 and Fig 7a",
    paper="1",
    band=at_least(0.95),
)
def data(seen: Sequence[Depth]) -> Tensor:
    """Accuracy of test on data, the lowest over depths of its mean over seeds."""
    return _lowest_mean(_accuracy(seen, DATA))


@claim(
    "Generalisation on the task is usually below that on data",
    at="section 4.4 and Fig 7a",
    paper="below or equal",
    band=at_least(-0.01),
)
def task_below_data(seen: Sequence[Depth]) -> Tensor | None:
    """Accuracy of test on data minus that of test on task, the lowest over depths of its mean over seeds."""
    return _lowest_mean(_accuracy(seen, DATA) - _accuracy(seen, TASK)) if _learned(seen) else None


@claim(
    "Generalisation on data comes before that on the task",
    at="section 4.4 and Fig 7b",
    paper="always",
    band=at_least(0.9),
)
def data_first(seen: Sequence[Depth]) -> Measurement:
    """Share of members, over depths and seeds, whose test on data passes {REACHED:g} no later than test on task; of
    those that pass it on data."""
    first, later = _reached(seen, DATA), _reached(seen, TASK)
    return over((first <= later)[first.isfinite()].float(), of="runs of every depth")


@claim(
    "It comes much earlier",
    at="section 4.4 and Fig 7b",
    paper="much earlier; no value in the text",
    band=at_least(1.5),
)
def much_earlier(seen: Sequence[Depth]) -> Tensor | None:
    """Step at which test on task passes {REACHED:g} over that of test on data, median over depths and seeds; a member
    that never passes it on the task counts with the last step."""
    first, later = _reached(seen, DATA), _reached(seen, TASK).clamp(max=seen[-1].steps)
    ratios = (later / first)[first.isfinite()]
    return ratios.median().reshape(1) if len(ratios) else None


@claim(
    "The deepest model has a single mapping sequence for each pair",
    at="section 4.4 and Fig 7a",
    paper="1 with 10 layers",
    band=within(1.0, 1.5),
)
def one_sequence(seen: Sequence[Depth]) -> Tensor | None:
    """Number of mapping sequences over the inputs answered rightly, mean over pairs and seeds, largest depth."""
    return seen[-1].outputs.counts.nanmean(dim=1) if _learned(seen) else None


@claim(
    "Nearly all of its inputs have that one",
    at="Fig 7a",
    paper="all of them with 10 layers",
    band=at_least(0.95),
)
def one_common_sequence(seen: Sequence[Depth]) -> Tensor | None:
    """Share of the inputs answered rightly that have their pair's most common mapping sequence, mean over pairs and
    seeds, largest depth."""
    return seen[-1].outputs.most_common.nanmean(dim=1) if _learned(seen) else None


@claim(
    "A shallower model has several mapping sequences for each pair",
    at="section 4.4 and Fig 7a",
    paper="several",
    band=at_least(2.0),
)
def several_sequences(seen: Sequence[Depth]) -> Tensor | None:
    """Number of mapping sequences as before, smallest depth."""
    return seen[0].outputs.counts.nanmean(dim=1) if _learned(seen) else None


@claim("Their number falls with depth", at="Fig 7a", paper="falls to 1", band=at_most(0.5))
def fewer_with_depth(seen: Sequence[Depth]) -> Tensor | None:
    """Number of mapping sequences at the largest depth over that at the smallest, mean over seeds."""
    deep, shallow = seen[-1].outputs.counts, seen[0].outputs.counts
    return deep.nanmean(dim=1) / shallow.nanmean(dim=1) if _learned(seen) else None


@claim(
    "At the first anchor the deepest model applies that anchor's operation twice",
    at="section 4.4 and Fig 6",
    paper="f f (key) for each anchor",
    band=at_least(0.9),
)
def first_anchor_twice(seen: Sequence[Depth]) -> Tensor | None:
    """Share of anchors whose most common offset from the key at the first anchor is twice their operation's, mean over
    seeds, largest depth."""
    twice = 2 * torch.tensor(list(ADDS.values()))[:, None]
    return (seen[-1].outputs.learned_first == twice).float().mean(dim=0) if _learned(seen) else None


@claim(
    "From the second anchor on it gives the answer and keeps it",
    at="section 4.4 and Fig 6",
    paper="at every position from the second anchor on",
    band=at_least(0.95),
)
def answer_kept(seen: Sequence[Depth]) -> Tensor | None:
    """Share of the inputs answered rightly whose output is the answer at each such position, mean over seeds, largest
    depth."""
    return seen[-1].outputs.answer_kept if _learned(seen) else None


def analyse(runs: Sequence[TrainedRun], setting: Depths) -> Analysis:
    """Draw both panels of Figure 7, and list the learned operations of Figure 6."""
    seen = [see(run, layers) for run, layers in zip(runs, setting.depths, strict=True)]
    deep = seen[-1]
    accuracies = curves_against(
        "Test accuracy against depth (Fig 7a, curves)",
        setting.depths,
        {split: _accuracy(seen, split).T for split in (DATA, TASK)},
        x_label="layers",
        y_label="test accuracy",
        caption=f"{MEAN_AND_RANGE} On data: trained pairs, keys at positions where training never shows them. On task: "
        "the pair (3, 4), which is never trained.",
        y_range=ACCURACY,
    )
    learning = split_curves(f"Accuracy along training, {deep.layers} layers (Fig 7b)", runs[-1], SPLITS)
    return Analysis(
        seen,
        figures=[accuracies, _sequence_figure(seen), learning],
        tables=[_first_table(deep), _pair_table(deep), _example_table(deep), _depth_table(seen)],
    )


def _sequence_figure(depths: Sequence[Depth]) -> LineFigure:
    return curves_against(
        "Mapping sequences per pair against depth (Fig 7a, bars)",
        [depth.layers for depth in depths],
        {"mapping sequences": torch.stack([depth.outputs.counts.nanmean(dim=1) for depth in depths], dim=1)},
        x_label="layers",
        y_label="mapping sequences per pair",
        caption="Distinct mapping sequences (Definition 1) over about 107 test inputs of each pair, those answered "
        f"wrongly left out; mean over the 16 pairs. {MEAN_AND_RANGE}",
        y_range=(0.0, None),
        references=[Reference("the paper, 10 layers: 1", 1.0)],
    )


def _signed(values: Sequence[int]) -> list[str]:
    return [f"{value:+d}" for value in values]


def _first_table(depth: Depth) -> Table:
    learned, given = depth.outputs.learned_first, list(ADDS.values())
    by_seed = {f"learned, seed {seed}": _signed(of.tolist()) for seed, of in enumerate(learned.T)}
    return column_table(
        f"Learned operation at the first anchor, {depth.layers} layers (Fig 6)",
        "The most common offset of the output at the first anchor from the key, seed by seed. The loss never asks for "
        "an output there. The first anchor cannot see the second.",
        {
            "anchor": list(ADDS),
            "given": _signed(given),
            "given, twice": _signed([2 * one for one in given]),
            **by_seed,
            "share of inputs": depth.outputs.share_of_learned_first().mean(dim=1),
        },
    )


def _pair_table(depth: Depth) -> Table:
    outputs = depth.outputs
    given = [[ADDS[int(anchor)] for anchor in pair.split(",")] for pair in outputs.pairs]
    chosen = [outputs.pair == pair for pair in range(len(outputs.pairs))]
    first = [int(outputs.first[0, of].mode().values) for of in chosen]
    second = [int(outputs.second[0, of].mode().values) for of in chosen]
    return column_table(
        f"Given and learned operations by pair, {depth.layers} layers (Fig 6)",
        "Learned: the most common offset from the key at the first anchor, and what the second adds to it, of the "
        "first seed. The last three columns are means over seeds.",
        {
            "pair": outputs.pairs,
            "given operations": [", ".join(_signed(both)) for both in given],
            "answer - key": _signed([sum(both) for both in given]),
            "learned operations": [", ".join(_signed([a, b - a])) for a, b in zip(first, second, strict=True)],
            "output at second anchor - key": _signed(second),
            "accuracy": [float(outputs.right[:, of].float().mean()) for of in chosen],
            "mapping sequences": outputs.counts.nanmean(dim=0),
            "share of the most common": outputs.most_common.nanmean(dim=0),
        },
    )


def _example_table(depth: Depth, count: int = 3) -> Table:
    outputs, rows = depth.outputs, []
    for index in ((outputs.keys <= 2) & outputs.right[0]).nonzero()[:count, 0].tolist():
        key, moves = int(outputs.keys[index]), outputs.sequences[0, index]
        last = int(moves.nonzero()[-1, 0]) if moves.any() else 0
        shown = ["·"] * (key + 1) + [str(token) for token in outputs.tokens[0, index, key + 1 :].tolist()]
        tokens = " ".join(map(str, outputs.inputs[index].tolist()))
        rows.append((tokens, " ".join(shown), ", ".join(_signed(moves[: last + 1].tolist()))))
    return Table(
        f"Outputs at every position, {depth.layers} layers (Fig 6, examples)",
        "Test inputs that the first seed answers rightly, its output from the first anchor on, and their mapping "
        "sequences.",
        columns=("input", "output", "mapping sequence"),
        rows=tuple(rows),
    )


def _depth_table(depths: Sequence[Depth]) -> Table:
    return column_table(
        "Depth by depth",
        f"Means over seeds. Steps are those at which the accuracy is first measured above {REACHED:g}, median over "
        "seeds; none where it never is.",
        {
            "layers": [depth.layers for depth in depths],
            **{
                f"{label}, accuracy": [float(depth.accuracy[split].mean()) for depth in depths]
                for split, label in SPLITS.items()
            },
            **{
                f"{label}, step above {REACHED:g}": [float(depth.reached[split].median()) for depth in depths]
                for split, label in SPLITS.items()
            },
            "mapping sequences": [float(depth.outputs.counts.nanmean()) for depth in depths],
            "share of the most common": [float(depth.outputs.most_common.nanmean()) for depth in depths],
            "answer kept from the second anchor on": [float(depth.outputs.answer_kept.nanmean()) for depth in depths],
        },
    )


STUDY = Study(
    name="anchor/composite",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: one head, width 64, 2, 4 and 10 layers (0.1 to 0.5 M parameters), 8000 sequences, 1600 "
            "steps of batch 100 at every depth with learning rate 2e-3 and weight decay 0.3, three seeds. The paper "
            "trains 2 to 10 layers of four heads, width 400, for 4000 to 8000 epochs (320,000 steps and more).",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: the setting of appendix A and the reference code, 8000 sequences, batch 100, 4000 epochs, "
            "2 to 10 layers of four heads, five seeds. The paper gives no weight decay; PyTorch's 0.01 is used.",
            paper=True,
        ),
    },
    smoke=replace(QUICK.shortened(steps=4, size=200), depths=(1, 2)),
)
