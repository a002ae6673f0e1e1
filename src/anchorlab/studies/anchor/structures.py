"""Ablation of architecture: which components of a decoder the identity anchor function needs.

Source: anchor functions, section 5.3, Figure 15.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Claim, Findings, Map, MapFigure, Provenance, Table, grid
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_recipe
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun

COMPONENTS = {
    "residual": "residual",
    "linear": "output_linear",
    "LN": "layer_norm",
    "FNN": "feed_forward",
    "projection": "projection",
    "mask": "mask",
}
"""The paper's names of the components, each with its switch in `DecoderSpec`."""

FULL = "all components"
NO_FNN = "without FNN"
BADLY = "linear + projection + mask"
NONE = "none"
ONE_LAYER = "one layer"
SHIFTED = "one layer, V shifted by one"

_SUBSETS: Mapping[str, str] = {
    FULL: "residual linear LN FNN projection mask",
    NO_FNN: "residual linear LN projection mask",
    "without FNN and LN": "residual linear projection mask",
    "residual + LN + projection + mask": "residual LN projection mask",
    "residual + projection + mask": "residual projection mask",
    BADLY: "linear projection mask",
    "projection + mask": "projection mask",
    "residual + LN + mask": "residual LN mask",
    "residual + linear + LN + mask": "residual linear LN mask",
    "residual": "residual",
    "LN": "LN",
    "residual + LN": "residual LN",
    NONE: "",
}
"""The two-layer structures of Figure 15 in its order, with the components that are left."""

_WIDE = (FULL, NO_FNN, "without FNN and LN")
"""Of those, the ones whose stream is wider than the heads; all sizes of the others are the vocabulary's."""

_NAMES = (*_SUBSETS, ONE_LAYER, SHIFTED)

_SOURCE = "anchor functions, section 5.3 and Fig 15"

CLAIMS = (
    Claim(
        "anchor/structures/full",
        "Two layers with all components generalise",
        _SOURCE,
        "100 % on all five seeds",
        "test accuracy, lowest over seeds",
        (0.99, 1.0),
    ),
    Claim(
        "anchor/structures/no-fnn",
        "Without the feed-forward network they still do, with slight variation",
        _SOURCE,
        "slight variation across five trials; no value in the text",
        "test accuracy, mean over seeds",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/structures/one-layer",
        "One layer does not generalise at all",
        _SOURCE,
        "not at all",
        "test accuracy, mean over seeds",
        (None, 0.1),
    ),
    Claim(
        "anchor/structures/shifted-values",
        "One layer whose values are shifted by one does so easily",
        _SOURCE,
        "easily; no value in the text",
        "test accuracy, mean over seeds",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/structures/badly",
        "With linear map, projection and mask alone, two layers generalise very badly",
        _SOURCE,
        "very badly for all five trials",
        "test accuracy, highest over seeds",
        (None, 0.5),
    ),
    Claim(
        "anchor/structures/none",
        "With none of the components they can generalise wholly",
        _SOURCE,
        "can be 100 %, with large fluctuation",
        "test accuracy, highest over seeds",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/structures/fewer-is-better",
        "They generalise better with none than with linear map, projection and mask",
        _SOURCE,
        "better",
        "difference of the test accuracies, mean over seeds",
        (0.1, None),
    ),
)


def structure(
    components: Collection[str], layers: int = 2, width: int = 400, head_width: int = 64, outputs: int = 201
) -> DecoderSpec:
    """A decoder of one head with some of `COMPONENTS`, of sizes that fit together as in the paper.

    Without the linear map after attention, heads are as wide as the stream; without the projection, the stream is as
    wide as the vocabulary (`outputs`).
    Source: anchor functions, section 5.3.
    Errors: `SpecError` for an unknown component.
    """
    unknown = set(components) - set(COMPONENTS)
    if unknown:
        raise SpecError("components", f"there is no {min(unknown)!r}", f"choose from {', '.join(COMPONENTS)}")
    width = width if "projection" in components else outputs
    return DecoderSpec(
        layers=layers,
        heads=1,
        width=width,
        head_width=head_width if {"linear", "projection"} <= set(components) else width,
        **{switch: name in components for name, switch in COMPONENTS.items()},
    )


def structures(width: int = 400, head_width: int = 64, outputs: int = 201) -> dict[str, DecoderSpec]:
    """The fifteen structures of Figure 15, by name, in its order."""
    found = {}
    for name, words in _SUBSETS.items():
        sizes = (width, head_width) if name in _WIDE else (outputs, outputs)
        found[name] = structure(words.split(), 2, *sizes, outputs)
    one = structure(tuple(COMPONENTS), 1, width, head_width, outputs)
    return {**found, ONE_LAYER: one, SHIFTED: one.replace(shift_values=1)}


def every_subset(width: int = 400, head_width: int = 64, outputs: int = 201) -> dict[str, DecoderSpec]:
    """Two layers under every subset of the six components, by name, the smallest subsets first: 64 structures."""
    subsets = (chosen for size in range(len(COMPONENTS) + 1) for chosen in combinations(COMPONENTS, size))
    return {" + ".join(chosen) or NONE: structure(chosen, 2, width, head_width, outputs) for chosen in subsets}


def _experiments(models: Mapping[str, DecoderSpec], recipe: Recipe, seeds: Iterable[int]) -> list[Experiment]:
    members = Members(seeds=tuple(seeds))
    return [Experiment(task("anchor/identity"), model, recipe, members, name) for name, model in models.items()]


def quick_experiments(names: Collection[str] = _NAMES, steps: int = 600, seeds: int = 5) -> list[Experiment]:
    """Narrow structures on 2000 sequences; where the paper ties all sizes to the vocabulary, so do these."""
    models = {name: model for name, model in structures(width=64).items() if name in names}
    return _experiments(models, quick_recipe(2000, steps, learning_rate=2e-3), range(seeds))


def paper_experiments(names: Collection[str] = _NAMES) -> list[Experiment]:
    """The structures in the paper's setting, on 2000 sequences."""
    models = {name: model for name, model in structures().items() if name in names}
    return _experiments(models, paper_recipe(2000), range(5))


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Accuracy of every structure and seed."""
    by_name = {run.experiment.cell.label: run for run in runs}
    train, test = (
        {name: at_end(run, split, "accuracy") for name, run in by_name.items()} for split in ("train", "test")
    )
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="The answer is the token after the anchor 3, at positions where training never shows it. Which "
        f"parts of a decoder does that take? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measure(test), provenance.profile),
        figures=(_figure(train, test),),
        tables=(_table(by_name, train, test),),
    )


def measure(test: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """What the claims are judged by, from each structure's test accuracies `[member]`; None without the structure."""

    def of(name: str) -> Tensor | None:
        return test.get(name)

    def end(name: str, highest: bool) -> Tensor | None:
        values = of(name)
        return None if values is None else (values.max() if highest else values.min()).reshape(1)

    none, badly = of(NONE), of(BADLY)
    return {
        "full": end(FULL, highest=False),
        "no-fnn": of(NO_FNN),
        "one-layer": of(ONE_LAYER),
        "shifted-values": of(SHIFTED),
        "badly": end(BADLY, highest=True),
        "none": end(NONE, highest=True),
        "fewer-is-better": None if none is None or badly is None else none - badly,
    }


def _figure(train: Mapping[str, Tensor], test: Mapping[str, Tensor]) -> MapFigure:
    seeds = tuple(map(str, range(len(next(iter(test.values()))))))
    return MapFigure(
        title="Accuracy of every structure, seed by seed (Fig 15)",
        caption="A row is a structure, a column a seed. Two layers of one head but for the last two rows. Linear is "
        "the map after attention, LN layer norm, FNN the feed-forward network, projection the map to the vocabulary, "
        "mask the causal mask.",
        maps=(
            tuple(
                Map(title, grid(torch.stack(list(values.values()))), tuple(values), seeds)
                for title, values in (("training sequences", train), ("test sequences", test))
            ),
        ),
        x_label="seed",
        y_label="structure",
        value_label="accuracy",
        value_range=(0.0, 1.0),
    )


def _table(by_name: Mapping[str, TrainedRun], train: Mapping[str, Tensor], test: Mapping[str, Tensor]) -> Table:
    return Table(
        title="Accuracy by structure",
        caption="At the end of training, over seeds. Parameters in thousands.",
        columns=("structure", "parameters, thousands", "train mean", "test mean", "test lowest", "test highest"),
        rows=tuple(
            (
                name,
                round(_parameters(run) / 1000),
                float(train[name].mean()),
                float(test[name].mean()),
                float(test[name].min()),
                float(test[name].max()),
            )
            for name, run in by_name.items()
        ),
    )


def _parameters(run: TrainedRun) -> int:
    of = run.experiment
    return sum(value.numel() for value in of.model.build(of.task.shape).parameters())


STUDY = Study(
    name="anchor/structures",
    title="Ablation of architecture: the components that the identity anchor function needs",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: the paper's structures; where its stream is 400 wide here it is 64, where its sizes are "
            "the vocabulary's 201 so are these. 600 steps of batch 50 on 2000 sequences with learning rate 2e-3 and "
            "weight decay 0.3, five seeds.",
        ),
        "paper": Profile(
            paper_experiments,
            "Paper profile: stream 400 and heads 64 wide in the first three and the last two structures, 201 in the "
            "others; 4000 epochs, five seeds. The paper does not give the number of training sequences here: 2000.",
        ),
        "subsets": Profile(
            lambda: _experiments(every_subset(width=64), quick_recipe(2000, learning_rate=2e-3), range(3)),
            "Subsets profile: two layers under every one of the 64 subsets of the six components, three seeds each, in "
            "the quick profile's recipe.",
        ),
        "smoke": Profile(lambda: quick_experiments(steps=2, seeds=2), "Smoke profile: two steps, for tests."),
    },
    analyse=analyse,
)
