"""Shared by the studies of noisy in-context recall: settings, truncations, and numbers read from runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference
from anchorlab.models import RecallSpec
from anchorlab.models.edits import Edit, Remove, Truncate
from anchorlab.models.recall import FeedForwardKind
from anchorlab.studies import SEARCHED, Measure, Profile, Reading, Study, fresh
from anchorlab.studies.draws import Draw
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, at_end, curves_against
from anchorlab.tasks import Task
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.training import SGD, Evaluation, Experiment, Members, Recipe, Stream, Times, TrainedRun, WarmupCosine

ALPHA = 0.5
SPACE = 1
"""The most frequent character of tiny Shakespeare: the one trigger."""

FIVE = (1, 39, 43, 53, 58)
"""Space, a, e, o and t: the five triggers of Figure 8."""

EARLY = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
"""Steps at which the noise is learned, long before anything else; measured in every run."""

FRACTIONS = (0.5, 0.25, 0.1, 0.05)
"""The fractions rho of the rank of F_2's input matrix that are kept, in addition to 1 and 0."""

OUTPUT_FRACTIONS = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.0)
"""The fractions rho of the rank of W_O of layer 0 that are kept where there is no feed-forward layer."""

FULL, WITHOUT_F1, WITHOUT_F2 = "none", "without F1", "without F2"
"""Names of edits in every run: the weights as they are, and either feed-forward layer dropped."""

FIRST = 10
"""The first steps, in which the noise is to be learned: "the first few (~ 5)", "very early"."""

SCORES = (
    "In every profile attention scores are divided by the root of the width, as in the authors' public code; the paper "
    "prints them undivided."
)
"""What every profile says of attention scores."""

FeedForwards = tuple[FeedForwardKind, FeedForwardKind]
"""The kinds of F_1 and F_2."""


@dataclass(frozen=True)
class Setting:
    """How noisy recall is learned under one profile."""

    task: NoisyRecall  # the law of the noisy sequences, with one trigger
    model: RecallSpec  # with a perceptron in both layers
    recipe: Recipe  # for the noisy sequences; `experiment` adds the truncations
    seeds: int
    tuning: int  # steps of training without noise, and of the fine-tuning with noise that follows
    long_batch: int  # sequences in a batch of the trainings whose steps grow as the learning rate falls

    def experiment(
        self,
        label: str = "noisy recall",
        feed_forward: FeedForwards = ("mlp", "mlp"),
        triggers: tuple[int, ...] = (SPACE,),
        alpha: float = ALPHA,
    ) -> Experiment:
        """Return the training of a recall model, with all its truncations measured along training.

        Equal arguments give the same cell in every study. With several triggers twice as many positions are scored;
        without feed-forward layers the value maps have two factors, as Figure 12 needs.
        """
        scored = self.task.max_scored * (2 if len(triggers) > 1 else 1)
        model = self.model.replace(
            feed_forward_1=feed_forward[0],
            feed_forward_2=feed_forward[1],
            factored_values=self.model.factored_values or feed_forward == ("none", "none"),
        )
        evaluation = self.recipe.evaluation.replace(edits=truncations(feed_forward))
        return Experiment(
            self.task.replace(alpha=alpha, triggers=triggers, max_scored=scored),
            model,
            self.recipe.replace(evaluation=evaluation),
            Members(seeds=fresh(self.seeds)),
            label,
        )


def truncations(feed_forward: FeedForwards) -> dict[str, tuple[Edit, ...]]:
    """Return the truncations measured along training: those in the paper for this choice of F_1 and F_2."""
    first, second = feed_forward
    edits: dict[str, tuple[Edit, ...]] = {}
    if second == "mlp":
        edits |= {f"rho={rho:g}": (Truncate(weight="blocks.1.mlp.W_in", fraction=rho),) for rho in FRACTIONS}
    if first != "none":
        edits[WITHOUT_F1] = (Remove(weight="blocks.0.mlp"),)
    if second != "none":
        edits[WITHOUT_F2] = (Remove(weight="blocks.1.mlp"),)
    if not edits:
        edits = {f"rho={rho:g}": (Truncate(weight="blocks.0.attn.W_O", fraction=rho),) for rho in OUTPUT_FRACTIONS}
    return edits


def _recipe(rate: float, batch: int, steps: int, every: int, size: int, weight_decay: float = 0.0) -> Recipe:
    return Recipe(
        data=Stream(),
        optimiser=SGD(learning_rate=rate, momentum=0.9, weight_decay=weight_decay),
        batch=batch,
        duration=steps,
        evaluation=Evaluation(every=every, at=EARLY, size=size),
        checkpoints=Times(every=every, at=EARLY),
    )


QUICK = Setting(
    NoisyRecall(name="recall/noisy", length=64, noise="existing", scored="after_trigger", max_scored=12),
    RecallSpec(width=128, hidden=256, factored_values=True),
    _recipe(0.03, batch=64, steps=3000, every=300, size=128).replace(schedule=WarmupCosine(horizon=3000, end=1 / 30)),
    seeds=14,
    tuning=600,
    long_batch=16,
)
PAPER = Setting(
    NoisyRecall(name="recall/noisy", length=256, noise="appended", scored="last"),
    RecallSpec(width=256, hidden=1024, factored_values=False),
    _recipe(0.03, batch=512, steps=2000, every=50, size=1024, weight_decay=1e-4),
    seeds=5,
    tuning=2000,
    long_batch=512,
)
SMOKE = replace(
    QUICK,
    task=QUICK.task.replace(length=24, max_scored=4),
    model=QUICK.model.replace(width=32, hidden=64),
    recipe=_recipe(0.002, batch=16, steps=4, every=2, size=16),  # so that a rate of 0.001 is not trained much longer
    seeds=2,
    tuning=2,
    long_batch=16,
)


def lasting(recipe: Recipe, steps: int) -> Recipe:
    """Return the recipe with another duration; a falling learning rate still reaches the same end."""
    recipe = recipe.replace(duration=steps)
    if isinstance(recipe.schedule, WarmupCosine):
        return recipe.replace(schedule=recipe.schedule.replace(horizon=steps))
    return recipe


def noisy_study(
    name: str,
    doc: str | None,
    claims: Sequence[Measure[Any]],
    trains: Callable[[Setting], Mapping[Any, Experiment]],
    reads: type[Reading],
    draws: Sequence[Draw],
    other_task: Callable[[Experiment], Task | None] | None = None,
    keeps: Callable[[TrainedRun, Setting], object] | None = None,
    seeds: int = QUICK.seeds,
) -> Study[Setting]:
    """Return a study of noisy recall with its profiles; `seeds` is for `quick`, the other arguments for `Study`."""
    profiles = {
        "quick": Profile(
            replace(QUICK, seeds=seeds),
            "T = 64, where the paper has 256; a learning rate that falls from 0.03 to 0.001, the ends of the range of "
            "appendix A.5; from the authors' public code: value maps of two factors, '!' for noise, and the loss after "
            "every second and later trigger, the last dozen of them. The paper's text has one value matrix, a noise "
            f"token of its own, and takes the loss at the last position alone. {SCORES}",
        ),
        "paper": Profile(
            PAPER,
            "The text of section 4 and appendix A.5, with the upper learning rate of its range and one value matrix "
            "per layer. Not in the text: momentum, weight decay and 1024 hidden units, from the authors' public "
            "code; the trigger, which is the most frequent character; five seeds, 1024 sequences for each "
            f"measurement, and the fractions ρ. {SCORES}",
            paper=True,
        ),
    }
    return Study(
        name, doc, claims, profiles, trains, reads, draws, smoke=SMOKE, chosen_on=SEARCHED, other_task=other_task,
        keeps=keeps,
    )  # fmt: skip


def noisy_and_tuned(setting: Setting) -> dict[str, Experiment]:
    """Return training with noise from the start, and fine-tuning with it after training without (Figures 4 and 5).

    Training without noise has alpha = 0; the caption of Figure 4 prints 1, which is all noise by the law of section 4.
    """
    short = replace(setting, recipe=lasting(setting.recipe, setting.tuning))
    tuned = replace(short.experiment("clean recall, then noisy"), start=short.experiment("clean recall", alpha=0.0))
    return {"noisy": setting.experiment(), "tuned": tuned}


@dataclass(frozen=True)
class Ends:
    """Final predictions of a model and its truncations on clean sequences, by edit: probabilities, loss in nats."""

    right: Mapping[str, Float[Tensor, "member"]]
    noise: Mapping[str, Float[Tensor, "member"]]
    loss: Mapping[str, Float[Tensor, "member"]]

    def gain(self, edit: str) -> Float[Tensor, "member"]:
        """Return by how much an edit makes the right token more probable."""
        return self.right[edit] - self.right[FULL]

    def row(self, edit: str) -> dict[str, Float[Tensor, "member"]]:
        """Return the values under an edit, keyed by their column headings."""
        return {"right token": self.right[edit], "noise token": self.noise[edit], "clean loss": self.loss[edit]}


def alpha_of(run: TrainedRun) -> float:
    """Return the probability of noise in a run's training, which differs from `ALPHA` in a varied study."""
    return float(run.experiment.task.model_dump()["alpha"])


def clean_ends(run: TrainedRun) -> Ends:
    """Read the last evaluation on clean sequences, of the full model and of every truncation."""
    edits, metrics = (FULL, *run.experiment.recipe.evaluation.edits), ("right", "noise", "loss")
    return Ends(*({edit: at_end(run, "clean", metric, edit) for edit in edits} for metric in metrics))


def noise_peak(run: TrainedRun, split: str, last: int = FIRST) -> Float[Tensor, "member"]:
    """Return the highest share of positions at which noise is predicted, after 1 to `last` steps.

    Noise is predicted at a scored position if it is the most probable token, as in the caption of Figure 4: "Fractions
    of predicting the noise token and the other non-noise tokens".
    """
    steps, noise = along(run, split, "predicts_noise")
    return noise[:, [index for index, step in enumerate(steps) if 0 < step <= last]].amax(dim=1)


def by_step(
    title: str,
    steps: Sequence[int],
    curves: Mapping[str, Float[Tensor, "member step"]],
    caption: str,
    x_label: str = "step + 1",
    y_label: str = "probability",
    references: Sequence[Reference] = (),
) -> LineFigure:
    """Return the figure of curves from 0 to 1 over a logarithmic axis of steps.

    The model before the first step is drawn at 1, as the end of the caption says. Arguments as in `curves_against`.
    """
    return curves_against(
        title,
        [step + 1 for step in steps],
        curves,
        x_label=x_label,
        y_label=y_label,
        caption=f"{caption} The step axis starts at 1 for the model before the first step.",
        log_x=True,
        y_range=(0.0, 1.0),
        references=references,
    )


def clean_panel(
    run: TrainedRun, metric: str, edits: Mapping[str, str], title: str, caption: str, *references: Reference
) -> LineFigure:
    """Return the figure of a metric on clean sequences along training; the run's alpha replaces `{alpha}`."""
    caption = caption.format(alpha=alpha_of(run))
    ideal = Reference("full model, ideal", ideal_scores(run.experiment.task, "clean")[metric])
    curves = {label: along(run, "clean", metric, edit)[1] for edit, label in edits.items()}
    figure = by_step(title, along(run, "clean", metric)[0], curves, caption, references=[*references, ideal])
    if metric != "loss":
        return figure
    return replace(figure, y_label="cross-entropy (nats)", log_y=True, y_range=(None, None))
