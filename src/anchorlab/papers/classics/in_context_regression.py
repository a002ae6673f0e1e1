"""In-context regression: a transformer fits a linear function to the examples before it.

Each sequence has its own linear function, shown by pairs of a point and its value. A transformer trained on such
sequences predicts the value at a new point as least squares does; with noisy values, as ridge regression does, which is
then the optimum.

Source: Garg et al., What can transformers learn in-context? A case study of simple function classes (2022), Figure 2;
for noisy values Akyürek et al., What learning algorithm is in-context learning? (2022), section 4.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, at_most
from anchorlab.lens import look
from anchorlab.models import VectorSpec
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, fresh, measures_in, precondition, reading
from anchorlab.studies.kit import MEAN_AND_RANGE, curves_against, seed_table, training_curves
from anchorlab.tasks import Batch, LinearRegression
from anchorlab.training import Adam, Evaluation, Experiment, Members, Recipe, Stream, TrainedRun, WarmupCosine

EXACT, NOISY = "exact values", "noisy values"
LEAST_SQUARES, RIDGE, AVERAGING = "least squares", "ridge", "averaging"
LOOKED_AT = 4096  # fresh sequences


@dataclass(frozen=True)
class Setting:
    """What a profile trains."""

    model: VectorSpec
    # the number of coordinates of a point, and the number of pairs in a sequence, more than twice as large
    dimension: int
    examples: int
    noise: float  # the standard deviation of the noise in the second experiment
    recipe: Recipe
    seeds: int  # the number of members

    def experiment(self, label: str, noise: float) -> Experiment:
        """Return the experiment that trains on values with this noise."""
        task = LinearRegression(dimension=self.dimension, examples=self.examples, noise=noise)
        return Experiment(task, self.model, self.recipe, Members(seeds=fresh(self.seeds)), label)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiments on exact and on noisy values."""
    return {EXACT: setting.experiment(EXACT, 0.0), NOISY: setting.experiment(NOISY, setting.noise)}


def baselines(
    task: LinearRegression, inputs: Float[Tensor, "batch position feature"]
) -> dict[str, Float[Tensor, "batch example"]]:
    """Return what each estimator predicts at every point from the pairs before it.

    `least squares` takes the weights of least norm among equal fits; `ridge` has the penalty d noise², the optimum for
    this task; `averaging` takes the mean of y x as the weights.
    """
    x, y = task.pairs(inputs)
    before = torch.arange(task.examples)
    sums = (x * y.unsqueeze(-1)).cumsum(dim=1).roll(1, dims=1)  # the roll puts the sum of all pairs first, zeroed below
    weights = sums * (before > 0).unsqueeze(-1) / before.clamp(min=1).unsqueeze(-1)
    return {
        LEAST_SQUARES: task.replace(noise=0.0).ideal(inputs).squeeze(-1),
        RIDGE: task.ideal(inputs).squeeze(-1),
        AVERAGING: (x * weights).sum(dim=-1).float(),
    }


def _of_models(trained: str, asked: str) -> cached_property[Float[Tensor, "member example"]]:
    return reading(lambda seen: seen.errors(seen.predictions(trained, asked), asked))


def _of_baselines(asked: str) -> cached_property[Mapping[str, Float[Tensor, "example"]]]:
    return reading(lambda seen: {name: seen.errors(one, asked) for name, one in seen.estimates[asked].items()})


class Seen(Reading):
    """Mean squared errors of predictions, against w . x, by the number of examples before the point.

    `moved` has models trained on exact values and tested on noisy ones. Both tasks use the same functions and points.
    """

    exact, noisy, moved = _of_models(EXACT, EXACT), _of_models(NOISY, NOISY), _of_models(EXACT, NOISY)
    of_exact, of_noisy = _of_baselines(EXACT), _of_baselines(NOISY)
    dimension = reading(lambda seen: int(seen.setting.dimension))  # d, the number of coordinates of a point

    @reading
    def batches(self) -> Mapping[str, Batch]:
        """Fresh sequences of each task."""
        return {label: run.experiment.task.sample("test", LOOKED_AT, seed=0) for label, run in self.runs.items()}

    @reading
    def estimates(self) -> Mapping[str, Mapping[str, Float[Tensor, "batch example"]]]:
        """The predictions of the baselines on each task."""
        return {label: baselines(_task_of(run), self.batches[label].inputs) for label, run in self.runs.items()}

    @reading
    def nearer_ridge(self) -> Float[Tensor, "member"]:
        """The share of noisy sequences with d examples whose prediction is nearer to ridge than to least squares."""
        predicted, estimates = self.predictions(NOISY, NOISY), self.estimates[NOISY]
        ridge, squares = ((predicted - estimates[name])[..., self.dimension].abs() for name in (RIDGE, LEAST_SQUARES))
        return (ridge < squares).double().mean(dim=1)

    def predictions(self, trained: str, asked: str) -> Float[Tensor, "member batch example"]:
        """Return the predictions on sequences of the task `asked`, of the models trained on the task `trained`."""
        batch = self.batches[asked]
        return look(self.runs[trained].ensemble(), batch.inputs, positions=batch.positions)["output"].squeeze(-1)

    def errors(self, predictions: Float[Tensor, "*member batch example"], asked: str) -> Float[Tensor, "*rows"]:
        """Return the mean squared error `[*member example]` of predictions, over the sequences of a task."""
        return (predictions - self.batches[asked].answers.squeeze(-1)).double().square().mean(dim=-2)


def _task_of(run: TrainedRun) -> LinearRegression:
    chosen = run.experiment.task
    assert isinstance(chosen, LinearRegression)
    return chosen


@precondition("Garg et al., Fig 2", "near 0", at_most(0.5))
def learned(seen: Seen) -> Float[Tensor, "seed"]:
    """With twice as many examples as coordinates the error is less than half of the zero estimator's.

    Squared error with 2d examples, exact values; the zero estimator's is 1.
    """
    return seen.exact[:, 2 * seen.dimension]


@claim("Garg et al., Fig 2", "1 - k/d after k examples", at_most(0.1))
def falls_as_least_squares(seen: Seen) -> Float[Tensor, "seed"]:
    """With fewer examples than coordinates the error falls like the least-squares error.

    Largest distance of the squared error from 1 - k/d, over k from 0 to d - 1, exact values.
    """
    optimum = 1 - torch.arange(seen.dimension) / seen.dimension
    return (seen.exact[:, : seen.dimension] - optimum).abs().amax(dim=1)


@claim("Garg et al., Fig 2", "near 0, like least squares", at_most(0.05))
def fits_the_function(seen: Seen) -> Float[Tensor, "seed"]:
    """Once the examples determine the function, the error is near the least-squares error.

    Squared error over d + 1 examples and more, minus that of least squares, exact values; mean over the numbers.
    """
    beyond = slice(seen.dimension + 1, None)
    return (seen.exact - seen.of_exact[LEAST_SQUARES])[:, beyond].mean(dim=1)


@claim("Garg et al., Fig 2", "far below", at_most(0.5))
def below_averaging(seen: Seen) -> Float[Tensor, "seed"]:
    """The model is better than averaging the products of points and values.

    Squared error over that of the averaging estimator, largest over 1 example and more, exact values.
    """
    return (seen.exact / seen.of_exact[AVERAGING])[:, 1:].amax(dim=1)


@claim("Akyürek et al., section 4.3", "matches the minimum Bayes risk", at_most(1.25))
def as_low_as_ridge(seen: Seen) -> Float[Tensor, "seed"]:
    """With noisy values the error matches ridge regression, the least possible.

    Squared error over that of ridge regression with penalty d noise², mean over 1 example and more.
    """
    return (seen.noisy / seen.of_noisy[RIDGE])[:, 1:].mean(dim=1)


@claim("Akyürek et al., section 4.3", "nearest to ridge with the variance of the noise", at_least(0.75))
def nearer_to_ridge(seen: Seen) -> Float[Tensor, "seed"]:
    """With noisy values predictions are nearer to ridge regression than to least squares.

    Share of noisy sequences whose prediction after d examples is nearer to ridge than to least squares.
    """
    return seen.nearer_ridge


@claim("Garg et al., section 4", "double descent, peak at d", at_least(1.0))
def inherits_the_peak(seen: Seen) -> Float[Tensor, "seed"]:
    """Trained on exact values alone, a model's error rises to a peak at d noisy examples, like least squares.

    Squared error after d noisy examples over that after d - 1; that of ridge regression falls.
    """
    return seen.moved[:, seen.dimension] / seen.moved[:, seen.dimension - 1]


def _exact(seen: Seen) -> LineFigure:
    curves = {"transformer": seen.exact, **_rows(seen.of_exact, LEAST_SQUARES, AVERAGING)}
    return _by_examples("Error by the number of examples (Garg et al., Fig 2)", curves)


def _noisy(seen: Seen) -> LineFigure:
    models = {"transformer": seen.noisy, "trained on exact values": seen.moved}
    return _by_examples(
        f"Error with noisy values, standard deviation {seen.setting.noise:g}",
        {**models, **_rows(seen.of_noisy, RIDGE, LEAST_SQUARES)},
    )


def _along(seen: Seen) -> LineFigure:
    return training_curves(
        "The error along training",
        seen.runs,
        "test",
        "loss",
        y_label="squared error",
        caption=f"{MEAN_AND_RANGE} Mean over the points of a sequence; the values' noise counts. Dashed: the optimum.",
        references=[
            Reference(f"optimum, {label}", float(errors[RIDGE].mean()) + noise**2)
            for label, errors, noise in ((EXACT, seen.of_exact, 0.0), (NOISY, seen.of_noisy, seen.setting.noise))
        ],
    )


def _table(seen: Seen) -> Table:
    d = seen.dimension
    measured = {EXACT: seen.exact, NOISY: seen.noisy, "exact, then noisy": seen.moved}
    return seed_table(
        "Squared errors, seed by seed",
        f"After d = {d} and 2d examples. The zero estimator's error is 1.",
        seen.first.experiment.members.seeds,
        {f"{name}, {count} examples": errors[:, count] for name, errors in measured.items() for count in (d, 2 * d)},
    )


def _rows(errors: Mapping[str, Float[Tensor, "example"]], *names: str) -> dict[str, Float[Tensor, "one example"]]:
    return {name: errors[name].unsqueeze(0) for name in names}


def _by_examples(title: str, curves: Mapping[str, Float[Tensor, "member example"]]) -> LineFigure:
    return curves_against(
        title,
        range(next(iter(curves.values())).shape[1]),
        curves,
        x_label="examples before the point",
        y_label="squared error",
        caption=f"{MEAN_AND_RANGE} Squared distance from w . x; a curve may leave the picture at its top.",
        y_range=(0.0, 1.5),
        references=[Reference("zero estimator", 1.0)],
    )


QUICK = Setting(
    model=VectorSpec(layers=3, heads=2, width=32, initial_scale=0.2),
    dimension=2,
    examples=6,
    noise=0.5,
    recipe=Recipe(
        data=Stream(),
        optimiser=Adam(learning_rate=5e-3),
        schedule=WarmupCosine(warmup=100, horizon=3000, end=0.02),
        batch=64,
        duration=3000,
        clip=1.0,
        evaluation=Evaluation(every=100, size=512, splits=("test",)),
    ),
    seeds=4,
)
PAPER = Setting(
    model=VectorSpec(layers=12, heads=8, width=256),
    dimension=20,
    examples=41,
    noise=1.0,
    recipe=Recipe(
        data=Stream(),
        optimiser=Adam(learning_rate=1e-4),
        batch=64,
        duration=500_000,
        evaluation=Evaluation(every=1000, size=1280, splits=("test",)),
    ),
    seeds=3,
)

STUDY = Study(
    "classics/in-context-regression",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_exact, _noisy, _along, _table),
    paper="In-context learning",
    profiles={
        "quick": Profile(
            QUICK,
            "Two coordinates and six pairs, where Garg et al. have 20 and 41; initial scale 0.2; noise of standard "
            "deviation 0.5.",
        ),
        "paper": Profile(
            PAPER,
            "20 coordinates and 41 pairs (Garg et al., appendix A). The source begins with five coordinates and 11 "
            "pairs and adds to both along training, which is not done here; it draws w with variance 1 and divides "
            "errors by d, which is the same. The noise, of the same variance as the values, is ours.",
        ),
    },
    smoke=replace(
        QUICK,
        model=QUICK.model.replace(layers=1, width=8),
        recipe=QUICK.recipe.replace(duration=4, evaluation=Evaluation(every=2, size=64, splits=("test",))),
        seeds=2,
    ),
    chosen_on=SEARCHED,
)
