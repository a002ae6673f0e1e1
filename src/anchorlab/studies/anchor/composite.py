"""The composite anchor function: what single operations it is made of, and how depth shapes the answer's making.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7; settings in its appendix A.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.composite_outputs import REACHED, SPLITS, Depth, offsets_of, share_of
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

CLAIMS = (
    Claim(
        "anchor/composite/data",
        "At every depth the trained pairs are answered on keys at unseen positions",
        "anchor functions, section 4.4 and Fig 7a",
        "1",
        "accuracy of test on data, the lowest over depths of its mean over seeds",
        (0.95, None),
    ),
    Claim(
        "anchor/composite/task-below-data",
        "Generalisation on the task is usually below that on data",
        "anchor functions, section 4.4 and Fig 7a",
        "below or equal",
        "accuracy of test on data minus that of test on task, the lowest over depths of its mean over seeds",
        (-0.01, None),
    ),
    Claim(
        "anchor/composite/data-first",
        "Generalisation on data comes before that on the task",
        "anchor functions, section 4.4 and Fig 7b",
        "always",
        f"share of members, over depths and seeds, whose test on data passes {REACHED:g} no later than test on task; "
        "of those that pass it on data",
        (0.9, None),
    ),
    Claim(
        "anchor/composite/much-earlier",
        "It comes much earlier",
        "anchor functions, section 4.4 and Fig 7b",
        "much earlier; no value in the text",
        f"step at which test on task passes {REACHED:g} over that of test on data, median over depths and seeds; a "
        "member that never passes it on the task counts with the last step",
        (1.5, None),
    ),
    Claim(
        "anchor/composite/one-sequence",
        "The deepest model has a single mapping sequence for each pair",
        "anchor functions, section 4.4 and Fig 7a",
        "1 with 10 layers",
        "number of mapping sequences over the inputs answered rightly, mean over pairs and seeds, largest depth",
        (1.0, 1.5),
    ),
    Claim(
        "anchor/composite/one-common-sequence",
        "Nearly all of its inputs have that one",
        "anchor functions, Fig 7a",
        "all of them with 10 layers",
        "share of the inputs answered rightly that have their pair's most common mapping sequence, mean over pairs and "
        "seeds, largest depth",
        (0.95, None),
    ),
    Claim(
        "anchor/composite/several-sequences",
        "A shallower model has several mapping sequences for each pair",
        "anchor functions, section 4.4 and Fig 7a",
        "several",
        "number of mapping sequences as before, smallest depth",
        (2.0, None),
    ),
    Claim(
        "anchor/composite/fewer-with-depth",
        "Their number falls with depth",
        "anchor functions, Fig 7a",
        "falls to 1",
        "number of mapping sequences at the largest depth over that at the smallest, mean over seeds",
        (None, 0.5),
    ),
    Claim(
        "anchor/composite/first-anchor-twice",
        "At the first anchor the deepest model applies that anchor's operation twice",
        "anchor functions, section 4.4 and Fig 6",
        "f f (key) for each anchor",
        "share of anchors whose most common offset from the key at the first anchor is twice their operation's, mean "
        "over seeds, largest depth",
        (0.9, None),
    ),
    Claim(
        "anchor/composite/answer-kept",
        "From the second anchor on it gives the answer and keeps it",
        "anchor functions, section 4.4 and Fig 6",
        "at every position from the second anchor on",
        "share of the inputs answered rightly whose output is the answer at each such position, mean over seeds, "
        "largest depth",
        (0.95, None),
    ),
)
_LEARNED = (
    "task-below-data",
    "one-sequence",
    "one-common-sequence",
    "several-sequences",
    "fewer-with-depth",
    "first-anchor-twice",
    "answer-kept",
)


def quick_experiments(
    depths: Sequence[int] = (2, 4, 10), steps: int = 1600, seeds: int = 3, size: int = 8000
) -> list[Experiment]:
    """One experiment per depth, of one head and width 64; depth 4 stands for the task where one is wanted."""
    return [
        Experiment(
            task("anchor/composite"),
            quick_model(layers=depth),
            quick_recipe(size, steps, batch=100, learning_rate=2e-3, evaluations=20),
            Members(seeds=tuple(range(seeds))),
            f"composite, {depth} layers",
        )
        for depth in depths
    ]


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("anchor/composite"),
                DecoderSpec(layers=depth),
                paper_recipe(8000, batch=100, every=20),
                Members(seeds=tuple(range(5))),
                f"composite, {depth} layers",
            )
            for depth in range(2, 11)
        ]

    return Profile(
        experiments,
        "Paper profile: the setting of appendix A and the reference code, 8000 sequences, batch 100, 4000 epochs, 2 to "
        "10 layers of four heads, five seeds. The paper gives no weight decay; PyTorch's 0.01 is used.",
    )


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Both panels of Figure 7 and the learned operations of Figure 6, from one run per depth, shallowest first."""
    depths = [Depth.of(run) for run in runs]
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Two of four anchors follow a key, and the answer is the key under both operations in turn. One of 16 "
        f"ordered pairs, (3, 4), is never trained. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, _measured(depths), provenance.profile, {"data-first": "runs of every depth"}),
        figures=(_depth_figure(depths), _sequence_figure(depths), _learning_figure(depths[-1])),
        tables=(_first_table(depths[-1]), _pair_table(depths[-1]), _example_table(depths[-1]), _depth_table(depths)),
    )


def _measured(depths: Sequence[Depth]) -> dict[str, Tensor | None]:
    shallow, deep = depths[0], depths[-1]
    data = torch.stack([depth.accuracy["test on data"] for depth in depths])
    lead = data - torch.stack([depth.accuracy["test on task"] for depth in depths])
    first = torch.cat([depth.reached["test on data"] for depth in depths])
    later = torch.cat([depth.reached["test on task"] for depth in depths])
    got, end = first.isfinite(), float(deep.run.experiment.steps)
    counted = {depth.layers: depth.seen.counts().nanmean(dim=1) for depth in (shallow, deep)}
    measured: dict[str, Tensor | None] = {
        "data": data[int(data.mean(dim=1).argmin())],
        "task-below-data": lead[int(lead.mean(dim=1).argmin())],
        "data-first": (first <= later)[got].float() if got.any() else None,
        "much-earlier": (later.clamp(max=end) / first)[got].median().reshape(1) if got.any() else None,
        "one-sequence": counted[deep.layers],
        "one-common-sequence": deep.seen.most_common().nanmean(dim=1),
        "several-sequences": counted[shallow.layers],
        "fewer-with-depth": counted[deep.layers] / counted[shallow.layers],
        "first-anchor-twice": deep.offsets_doubled,
        "answer-kept": share_of(deep.seen.kept, deep.seen.right),
    }
    learned = all(float(depth.accuracy["test on data"].mean()) > REACHED for depth in (shallow, deep))
    return {name: None if name in _LEARNED and not learned else value for name, value in measured.items()}


def _depth_figure(depths: Sequence[Depth]) -> LineFigure:
    layers = [depth.layers for depth in depths]
    return LineFigure(
        title="Test accuracy against depth (Fig 7a, curves)",
        caption="Mean over seeds; the band reaches from the lowest to the highest. On data: trained pairs, keys at "
        "positions where training never shows them. On task: the pair (3, 4), which is never trained.",
        x_label="layers",
        y_label="test accuracy",
        lines=tuple(
            line(split, layers, torch.stack([depth.accuracy[split] for depth in depths], dim=1))
            for split in ("test on data", "test on task")
        ),
        y_range=(0.0, 1.02),
    )


def _sequence_figure(depths: Sequence[Depth]) -> LineFigure:
    layers = [depth.layers for depth in depths]
    counts = torch.stack([depth.seen.counts().nanmean(dim=1) for depth in depths], dim=1)
    return LineFigure(
        title="Mapping sequences per pair against depth (Fig 7a, bars)",
        caption="Distinct mapping sequences (Definition 1) over about 107 test inputs of each pair, those answered "
        "wrongly left out; mean over the 16 pairs. Mean over seeds; the band reaches from the lowest to the highest.",
        x_label="layers",
        y_label="mapping sequences per pair",
        lines=(line("mapping sequences", layers, counts),),
        y_range=(0.0, None),
        references=(Reference("the paper, 10 layers: 1", 1.0),),
    )


def _learning_figure(depth: Depth) -> LineFigure:
    unit = depth.run.experiment.steps_per_unit
    lines = []
    for split, label in SPLITS.items():
        steps, values = along(depth.run, split, "accuracy")
        lines.append(line(label, [step / unit for step in steps], values))
    return LineFigure(
        title=f"Accuracy along training, {depth.layers} layers (Fig 7b)",
        caption="Mean over seeds; the band reaches from the lowest to the highest.",
        x_label=depth.run.experiment.recipe.unit,
        y_label="accuracy",
        lines=tuple(lines),
        y_range=(0.0, 1.02),
    )


def _mean(values: Tensor) -> float | None:
    """The mean of what is known, None where nothing is."""
    return None if values.isnan().all() else float(values.nanmean())


def _finite(value: Tensor) -> float | None:
    return float(value) if value.isfinite() else None


def _first_table(depth: Depth) -> Table:
    seeds = depth.run.experiment.members.seeds
    rows: list[tuple[str | int | float | None, ...]] = []
    for anchor, offset in offsets_of(depth.run.experiment.task).items():
        common, share = depth.common_first(anchor)
        rows.append(
            (anchor, f"{offset:+d}", f"{2 * offset:+d}", *(f"{int(one):+d}" for one in common), float(share.mean()))
        )
    return Table(
        title=f"Learned operation at the first anchor, {depth.layers} layers (Fig 6)",
        caption="The most common offset of the output at the first anchor from the key, seed by seed. The loss never "
        "asks for an output there. The first anchor cannot see the second.",
        columns=("anchor", "given", "given, twice", *(f"learned, seed {seed}" for seed in seeds), "share of inputs"),
        rows=tuple(rows),
    )


def _pair_table(depth: Depth) -> Table:
    seen, offsets = depth.seen, offsets_of(depth.run.experiment.task)
    counts, most = seen.counts(), seen.most_common()
    rows: list[tuple[str | int | float | None, ...]] = []
    for index, pair in enumerate(seen.pairs):
        chosen = seen.pair == index
        first, second = (int(values[0, chosen].mode().values) for values in (seen.first, seen.second))
        given = [offsets[int(anchor)] for anchor in pair.split(",")]
        rows.append(
            (
                pair,
                ", ".join(f"{one:+d}" for one in given),
                f"{sum(given):+d}",
                f"{first:+d}, {second - first:+d}",
                f"{second:+d}",
                float(seen.right[:, chosen].float().mean()),
                _mean(counts[:, index]),
                _mean(most[:, index]),
            )
        )
    return Table(
        title=f"Given and learned operations by pair, {depth.layers} layers (Fig 6)",
        caption="Learned: the most common offset from the key at the first anchor, and what the second adds to it, of "
        "the first seed. The last three columns are means over seeds.",
        columns=(
            "pair",
            "given operations",
            "answer - key",
            "learned operations",
            "output at second anchor - key",
            "accuracy",
            "mapping sequences",
            "share of the most common",
        ),
        rows=tuple(rows),
    )


def _example_table(depth: Depth, count: int = 3) -> Table:
    seen = depth.seen
    early = (seen.batch.latents["key_positions"][:, 0] <= 2) & seen.right[0]
    rows = []
    for index in [int(early.nonzero()[at, 0]) for at in range(min(count, int(early.sum())))]:
        key = int(seen.batch.latents["key_positions"][index, 0])
        outputs = seen.outputs[0, index].tolist()
        moves = seen.sequences[0, index]
        last = int(moves.nonzero()[-1, 0]) if moves.any() else 0
        rows.append(
            (
                " ".join(map(str, seen.batch.inputs[index].tolist())),
                " ".join(["·"] * (key + 1) + list(map(str, outputs[key + 1 :]))),
                ", ".join(f"{int(move):+d}" for move in moves[: last + 1]),
            )
        )
    return Table(
        title=f"Outputs at every position, {depth.layers} layers (Fig 6, examples)",
        caption="Test inputs that the first seed answers rightly, its output from the first anchor on, and their "
        "mapping sequences.",
        columns=("input", "output", "mapping sequence"),
        rows=tuple(rows),
    )


def _depth_table(depths: Sequence[Depth]) -> Table:
    return Table(
        title="Depth by depth",
        caption=f"Means over seeds. Steps are those at which the accuracy is first measured above {REACHED:g}, median "
        "over seeds; none where it never is.",
        columns=(
            "layers",
            *(f"{label}, accuracy" for label in SPLITS.values()),
            *(f"{label}, step above {REACHED:g}" for label in SPLITS.values()),
            "mapping sequences",
            "share of the most common",
            "answer kept from the second anchor on",
        ),
        rows=tuple(
            (
                depth.layers,
                *(float(values.mean()) for values in depth.accuracy.values()),
                *(_finite(steps.median()) for steps in depth.reached.values()),
                _mean(depth.seen.counts()),
                _mean(depth.seen.most_common()),
                _mean(share_of(depth.seen.kept, depth.seen.right)),
            )
            for depth in depths
        ),
    )


STUDY = Study(
    name="anchor/composite",
    title="The composite anchor function: learned operations, mapping sequences and depth",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: one head, width 64, 2, 4 and 10 layers (0.1 to 0.5 M parameters), 8000 sequences, 1600 "
            "steps of batch 100 at every depth with learning rate 2e-3 and weight decay 0.3, three seeds. The paper "
            "trains 2 to 10 layers of four heads, width 400, for 4000 to 8000 epochs (320,000 steps and more).",
        ),
        "paper": _paper(),
        "smoke": Profile(
            lambda: quick_experiments(depths=(1, 2), steps=4, seeds=2, size=200),
            "Smoke profile: it only exercises the code.",
        ),
    },
    analyse=analyse,
)
