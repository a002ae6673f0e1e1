"""Ablation of architecture: the components that the identity anchor function needs.

The answer is the token after the anchor 3, at positions where training never shows it. Which parts of a decoder does
this need?

Source: anchor functions, section 5.3, Figure 15.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anchorlab.findings import Map, MapFigure, Table, at_least, at_most, grid
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, metrics_alone, quick_recipe
from anchorlab.studies.kit import mean_and_range
from anchorlab.studies.readings import at_end
from anchorlab.tasks import task
from anchorlab.training import Experiment, Recipe
from anchorlab.training.cost import parameter_count

COMPONENTS = {
    "residual": "residual",
    "linear": "output_linear",
    "LN": "layer_norm",
    "FNN": "feed_forward",
    "projection": "projection",
    "mask": "mask",
}
"""The paper's names of the components, each with its switch in `DecoderSpec`."""

VOCABULARY = 201
FITTED = 0.95  # training accuracy from which a structure that is said to fail is judged
FIG_15 = "section 5.3 and Fig 15"

WHOLE = 0.95  # test accuracy from which a seed generalises wholly
FULL, NO_FNN, BADLY, NONE = "all components", "without FNN", "linear + projection + mask", "none"
ONE_LAYER, SHIFTED = "one layer", "one layer, V shifted by one"

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
"""The two-layer structures of Figure 15 in the figure's order, each with the components that it has."""

_WIDE = (FULL, NO_FNN, "without FNN and LN")
"""The two-layer structures whose stream is wider than the heads; all sizes of the others are the vocabulary's."""


def structure(components: Collection[str], width: int = 400, head_width: int = 64) -> DecoderSpec:
    """Return a model of two one-head layers with the given components, sized to fit together as in the paper.

    Without the linear map after attention, heads are as wide as the stream; without the projection, the stream is as
    wide as the vocabulary. Source: anchor functions, section 5.3.
    """
    width = width if "projection" in components else VOCABULARY
    return DecoderSpec(
        layers=2,
        heads=1,
        width=width,
        head_width=head_width if {"linear", "projection"} <= set(components) else width,
        **{switch: name in components for name, switch in COMPONENTS.items()},
    )


def structures(width: int = 400, head_width: int = 64) -> dict[str, DecoderSpec]:
    """Return the fifteen structures of Figure 15 by name, in the figure's order."""
    wide, narrow = (width, head_width), (VOCABULARY, VOCABULARY)
    found = {name: structure(words.split(), *(wide if name in _WIDE else narrow)) for name, words in _SUBSETS.items()}
    one = found[FULL].replace(layers=1)
    return {**found, ONE_LAYER: one, SHIFTED: one.replace(shift_values=1)}


def every_subset(width: int = 400, head_width: int = 64) -> dict[str, DecoderSpec]:
    """Return the two-layer model for each of the 64 subsets of the components, by name, smallest subsets first."""
    subsets = (chosen for size in range(len(COMPONENTS) + 1) for chosen in combinations(COMPONENTS, size))
    return {" + ".join(chosen) or NONE: structure(chosen, width, head_width) for chosen in subsets}


CLAIMED = {FULL: 4, NO_FNN: 4, BADLY: 10, NONE: 15, ONE_LAYER: 6, SHIFTED: 14}
"""The structures that a claim is about, with their seeds in `paper-claimed`: four, or more where four left one open."""


def _settings(models: Mapping[str, DecoderSpec], recipe: Recipe, seeds: int) -> dict[str, Setting]:
    return {name: Setting(model, recipe, seeds) for name, model in models.items()}


QUICK = _settings(structures(width=64), quick_recipe(2000, learning_rate=2e-3), seeds=14)
SCALED = _settings({name: structures()[name] for name in CLAIMED}, paper_recipe(1000, epochs=1600, whole=1600), seeds=1)
PAPER = _settings(structures(), paper_recipe(1000), seeds=5)


def experiments(setting: Mapping[str, Setting]) -> dict[str, Experiment]:
    """Return the experiment of each structure by its name."""
    return {name: one.experiment(task("anchor/identity"), name) for name, one in setting.items()}


class Accuracies(Reading):
    """Final accuracy of each structure, by its name."""

    train = at_end("train", "accuracy")
    test = at_end("test", "accuracy")

    def fitted(self, name: str) -> Float[Tensor, "fitted"] | None:
        """Return the test accuracies of the seeds that fitted a structure's training sequences."""
        return self.test[name][self.train[name] >= FITTED] if name in self.test else None


@claim(FIG_15, "100 % on all five seeds", at_least(0.99))
def full(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """Two layers with all components generalise.

    Test accuracy with all components, mean over seeds.
    """
    return seen.test.get(FULL)


@claim(FIG_15, "slight variation across five trials; no value in the text", at_least(0.9))
def no_fnn(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """Without the feed-forward network two layers still generalise, with slight variation.

    Test accuracy without the feed-forward network, mean over seeds.
    """
    return seen.test.get(NO_FNN)


@claim(FIG_15, "not at all", at_most(0.1))
def one_layer(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """One layer does not generalise at all.

    Test accuracy of one layer, mean over seeds that fit their training sequences (training accuracy at least
    {FITTED:g}).
    """
    return seen.fitted(ONE_LAYER)


@claim(FIG_15, "easily; no value in the text", at_least(0.95))
def shifted_values(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """One layer whose values are shifted by one generalises easily.

    Test accuracy of one layer with shifted values, mean over seeds.
    """
    return seen.test.get(SHIFTED)


@claim(FIG_15, "very badly for all five trials", at_most(0.5))
def badly(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """With linear map, projection and mask alone, two layers generalise very badly.

    Test accuracy with linear map, projection and mask alone, mean over seeds that fit their training sequences
    (training accuracy at least {FITTED:g}).
    """
    return seen.fitted(BADLY)


@claim(FIG_15, "can be 100 %, with large fluctuation, in five trials", at_least(0.2))
def none(seen: Accuracies) -> Bool[Tensor, "seed"] | None:
    """With none of the components two layers can generalise wholly.

    Share of seeds with a test accuracy of at least {WHOLE:g} with none of the components.
    """
    return seen.test[NONE] >= WHOLE if NONE in seen.test else None


@claim(FIG_15, "better", at_least(0.1))
def fewer_is_better(seen: Accuracies) -> Float[Tensor, "seed"] | None:
    """Models without any of the components generalise better than with linear map, projection and mask.

    Test accuracy with none of the components minus that with linear map, projection and mask, mean over seeds whose
    latter model fits its training sequences (training accuracy at least {FITTED:g}).
    """
    if not {NONE, BADLY} <= set(seen.test):
        return None
    both = len(seen.test[BADLY])  # `paper-claimed` has further seeds of the former
    return (seen.test[NONE][:both] - seen.test[BADLY])[seen.train[BADLY] >= FITTED]


def _figure(seen: Accuracies) -> MapFigure:
    seeds = max((run.experiment.members.seeds for run in seen.runs.values()), key=len)
    maps = tuple(
        Map(title, grid(pad_sequence([*values.values()], True, math.nan)), tuple(values), tuple(map(str, seeds)))
        for title, values in (("training sequences", seen.train), ("test sequences", seen.test))
    )
    return MapFigure(
        title="Accuracy of every structure, seed by seed (Fig 15)",
        caption="A row is a structure; hatched: not trained with this seed. Two layers of one head, except in the "
        "last two rows. Linear is the map after attention, LN layer norm, FNN the feed-forward network, projection the "
        "map to the vocabulary, mask the causal mask.",
        maps=(maps,),
        x_label="seed",
        y_label="structure",
        value_label="accuracy",
        value_range=(0.0, 1.0),
    )


def _table(seen: Accuracies) -> Table:
    rows = [
        (
            name,
            round(parameter_count(run.experiment) / 1000),
            float(seen.train[name].mean()),
            *mean_and_range(seen.test[name]),
        )
        for name, run in seen.runs.items()
    ]
    return Table(
        title="Accuracy by structure",
        caption="At the end of training, over seeds. Parameters in thousands.",
        columns=("structure", "parameters, thousands", "train mean", "test mean", "test lowest", "test highest"),
        rows=tuple(rows),
    )


STUDY = Study(
    "anchor/structures",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Accuracies,
    draws=(_figure, _table),
    keeps=metrics_alone,
    profiles={
        "quick": Profile(
            QUICK,
            "The paper's structures, with a stream of width 64 in place of 400; sizes that are the "
            "vocabulary's 201 in the paper are 201 here, too.",
        ),
        "scaled": Profile(SCALED, "The six structures that a claim is about; the paper's schedule is shortened."),
        "paper": Profile(
            PAPER,
            "Stream 400 and heads 64 wide in the first three and the last two structures, 201 in the others. The "
            f"number of training sequences is that of the authors' code; the paper gives none here. {BATCH_NOTE}",
            paper=True,
        ),
        "paper-claimed": Profile(
            {name: replace(PAPER[name], seeds=seeds) for name, seeds in CLAIMED.items()},
            "The six of the paper's fifteen structures that a claim is about, in the setting of the paper profile, "
            f"with four seeds, or more where four left a claim open. {BATCH_NOTE}",
            paper=True,
        ),
        "subsets": Profile(
            _settings(every_subset(width=64), quick_recipe(2000, learning_rate=2e-3), seeds=3),
            "Every one of the 64 subsets of the six components, in the quick profile's recipe.",
        ),
    },
    smoke={name: QUICK[name].shortened(steps=2) for name in CLAIMED},
    chosen_on=SEARCHED,
)
