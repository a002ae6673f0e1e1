"""Retrieval: loss against depth, with and without implicit curriculum.

Chains of random vectors must be followed from pair to pair. With the implicit curriculum every step of the chain is
queried, without it only the last.

Source: stacked attention heads, section 7 and Figure 4.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least, at_most
from anchorlab.papers.retrieval import settings
from anchorlab.papers.retrieval.chain_order import (
    GUESSING_LINE,
    in_order,
    loss_curves,
    partial_losses,
    partials_along,
    retrieved_at,
)
from anchorlab.studies import SEARCHED, Measurement, Profile, Study, claim, measures_in, over, over_shared, precondition
from anchorlab.studies.kit import along, column_table
from anchorlab.studies.readings import Reading, of_first, reading
from anchorlab.training import Experiment, TrainedRun

LAST = 100
"""The training steps at the end over which the final loss is averaged (section 7.1)."""

FAILED = 0.7
"""The final loss above which a run without the curriculum has learned nothing (section 7.2)."""


@dataclass(frozen=True)
class Setting:
    """Numbers of layers, and what each trains on: `chains` with the curriculum, and `end`, querying only the end."""

    layers: tuple[int, ...]
    chains: Experiment
    end: Experiment


QUICK = Setting((1, 2, 3, 4, 6), settings.quick(3, 1, 1000, seeds=14), settings.quick(3, 1, 1000, seeds=14))
PAPER = Setting(tuple(range(1, 9)), settings.section_7(5), settings.section_7(3))
SMOKE = Setting((1, 2), settings.smoke(2), settings.smoke(2, seeds=1))


def experiments(setting: Setting) -> dict[tuple[str, int], Experiment]:
    """Return an experiment for each number of layers, first with the curriculum, then without it."""
    return {
        (curriculum, layers): replace(
            base,
            task=base.task.replace(implicit_curriculum=curriculum == "with"),
            model=base.model.replace(layers=layers),
            label=f"{layers} layer{'s' * (layers > 1)}, {curriculum} curriculum",
        )
        for base, curriculum in ((setting.chains, "with"), (setting.end, "no"))
        for layers in setting.layers
    }


def _by_depth(curriculum: str, read: Callable[[TrainedRun], Tensor]) -> cached_property[Tensor]:
    """Return a reading of every run `with` or with `no` curriculum, the shallowest models first: `[depth ...]`."""
    return reading(lambda seen: torch.stack([read(seen.runs[curriculum, layers]) for layers in seen.setting.layers]))


def final_loss(run: TrainedRun) -> Float[Tensor, "member"]:
    """Return the test loss, mean over the evaluations of the last 100 training steps."""
    steps, losses = along(run, "test", "loss")
    return losses[:, torch.tensor(steps) > steps[-1] - LAST].mean(dim=1).float()


class Seen(Reading):
    """The losses of models at the end of training, and when they retrieve the symbols."""

    loss = _by_depth("with", final_loss)  # [depth member]
    loss_without = _by_depth("no", final_loss)  # [depth other_member]
    partial = _by_depth("with", partial_losses)  # [depth member symbol]
    retrieved = _by_depth("with", retrieved_at)  # steps [depth member symbol]; infinite if never
    apart = of_first(lambda run: max(np.diff(partials_along(run)[0]).tolist()))  # of two evaluations, in steps
    # the fewest layers in which each symbol can be retrieved, with the models' mask and number of heads
    least = of_first(lambda run: settings.least_layers_of(run, settings.retrieval_of(run).asked))

    @property
    def end(self) -> int:
        """The one symbol that is queried without the curriculum, counted from 1."""
        return int(self.setting.end.task.steps)


@claim("section 7.2", "above 0.7 in 100 % of runs", at_least(0.8))
def no_curriculum_fails(seen: Seen) -> Bool[Tensor, "seed"] | None:
    """Without the implicit curriculum no depth helps.

    Share of seeds whose final loss without the curriculum is above {FAILED:g} at every depth; judged only if some
    depth, trained alike but with the curriculum, retrieves the queried symbol.
    """
    by_depth = seen.partial[:, :, seen.end - 1].mean(dim=1)
    return (seen.loss_without > FAILED).all(dim=0) if bool((by_depth < settings.RETRIEVED).any()) else None


@claim("Fig 4 left", "drawn; no value in the text", at_least(0.2))
def depth_helps(seen: Seen) -> Float[Tensor, "seed"]:
    """With the implicit curriculum deeper transformers reach a lower loss.

    Mean final loss of the shallowest minus that of the deepest.
    """
    return seen.loss[0] - seen.loss[-1]


@claim("section 7.2", "in 100 % of runs", at_least(0.8))
def chain_order(seen: Seen) -> Measurement:
    """Partial losses fall below 0.5 in chain order.

    Share of seeds for which, in every curriculum run that retrieves at least two symbols, the partial loss of x_1 falls
    below 0.5 first, then that of x_2, and so on; times closer than two evaluations are ties and are not judged.
    """
    two = seen.retrieved.isfinite().sum(dim=2) > 1  # [depth member]
    ordered = torch.stack([in_order(times, seen.apart) for times in seen.retrieved])
    judged = two & ordered.isfinite()
    each = ((ordered == 1) | ~judged).all(dim=0)[judged.any(dim=0)]
    return over(each, detail=f"{int(two.sum())} of {two.numel()} runs retrieve two symbols or more")


@claim("Fig 4 right", "higher partial loss for later positions, averaged across runs", at_least(0.8))
def later_is_harder(seen: Seen) -> Measurement:
    """Later positions of the chain are harder.

    Share of depths at which the final partial losses, averaged over runs as in the figure, rise along the chain, among
    depths that retrieve any symbol.
    """
    judged = (seen.partial.mean(dim=1) < settings.RETRIEVED).any(dim=1)
    if not judged.any():
        return Measurement(None)
    losses = seen.partial[judged].movedim(1, 0)  # [member depth symbol]

    def rising(rows: Tensor) -> Tensor:
        return (rows.mean(dim=0).diff(dim=1) >= 0).all(dim=1).float().mean()

    return over_shared(losses, rising, detail=f"{int(judged.sum())} depths")


@precondition(
    "Fig 4 right",
    "drawn; no value in the text",
    at_most(settings.RETRIEVED),
    of=("chain-order", "later-is-harder", "least-layers"),
)
def second_step_retrieved(seen: Seen) -> Float[Tensor, "seed"]:
    """With enough layers the second step is retrieved as well.

    Mean final partial loss of x_2 with the curriculum, lowest over depths.
    """
    second = seen.partial[:, :, 1]
    return second[int(second.mean(dim=1).argmin())]


@claim("section 10.1", "cannot solve it unless it has the minimum number of necessary layers", at_most(0.05))
def least_layers(seen: Seen) -> Measurement:
    """No model follows the chain further than its layers allow.

    Share of symbols retrieved among those that need more layers than a curriculum run has; judged only if some depth
    retrieves every one of these symbols.
    """
    short = torch.tensor(seen.least) > torch.tensor(seen.setting.layers).unsqueeze(1)  # [depth symbol]
    learned = seen.partial < settings.RETRIEVED
    found = learned.permute(0, 2, 1)[short].float()  # [out_of_reach member]
    within_reach = learned.float().mean(dim=1) > 0.5
    learnable = bool(within_reach.any(dim=0)[short.any(dim=0)].all())
    detail = f"of {found.numel()}"
    return over(found.mean(dim=0), detail=detail) if found.numel() and learnable else Measurement(None, detail=detail)


def _depths_table(seen: Seen) -> Table:
    learned = (seen.partial < settings.RETRIEVED).float().mean(dim=1)
    layers = torch.tensor(seen.setting.layers)

    def fewest(share: float) -> list[int | None]:
        found = [layers[learned[:, symbol] > share] for symbol in range(learned.shape[1])]
        return [int(one.min()) if len(one) else None for one in found]

    return column_table(
        "Trained depth against the least depth (section 10.1)",
        "The least number of layers in which information can flow to the query, with the mask and the heads of these "
        "models; the fewest layers with which any model retrieves the symbol, and with which most models do.",
        {
            "symbol": [f"x_{symbol}" for symbol in range(1, len(seen.least) + 1)],
            "least": list(seen.least),
            "any model": fewest(0.0),
            "most models": fewest(0.5),
        },
    )


def _losses(seen: Seen) -> LineFigure:
    return loss_curves(
        "Final loss against the number of layers (Fig 4, left)",
        seen.setting.layers,
        {
            f"implicit curriculum (D = {seen.partial.shape[2]})": seen.loss.T,
            f"no curriculum (D = {seen.end})": seen.loss_without.T,
        },
        "Mean squared error on fresh sequences, over the last 100 training steps; mean and range over seeds. Knowing "
        "which symbols occur, but not which is asked for, gives 0.75.",
        GUESSING_LINE,
        "layers",
    )


def _partials(seen: Seen) -> LineFigure:
    return loss_curves(
        "Partial loss of each position of the chain against depth (Fig 4, right)",
        seen.setting.layers,
        dict(zip(_symbols(seen), seen.partial.permute(2, 1, 0), strict=True)),
        "With the implicit curriculum, at the end of training; mean and range over seeds.",
        x_label="layers",
    )


def _along(seen: Seen) -> LineFigure:
    deepest = seen.setting.layers[-1]
    return loss_curves(
        f"Partial losses along training, {deepest} layers",
        *partials_along(seen.runs["with", deepest]),
        "With the implicit curriculum; mean and range over seeds. In the paper, the earlier a symbol comes in "
        "the chain, the earlier it is retrieved.",
    )


def _symbols(seen: Seen) -> list[str]:
    return [f"x_{symbol}" for symbol in settings.retrieval_of(seen.first).asked]


def _table(seen: Seen) -> Table:
    columns = {"with curriculum": seen.loss, "without": seen.loss_without}
    columns |= dict(zip(_symbols(seen), seen.partial.unbind(dim=2), strict=True))
    return column_table(
        "Final losses by depth",
        "Over the last 100 training steps, means over seeds; partial losses at the end, with the curriculum.",
        {"layers": seen.setting.layers, **{heading: losses.mean(dim=1) for heading, losses in columns.items()}},
    )


STUDY = Study(
    "retrieval/depth",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_losses, _partials, _along, _table, _depths_table),
    profiles={
        "quick": Profile(
            QUICK,
            "D = 3, where the paper has D = 5, and 3 without the curriculum; N = 4 and K = 8, where the paper has K "
            "= 4; initial scale 0.15; position vectors of eight neighbours nearly orthogonal.",
        ),
        "paper": Profile(
            PAPER,
            f"Section 7.1. {settings.OUR_CHOICES} The final loss is the mean over both evaluations in the last 100 "
            "steps, each on 4096 sequences.",
            paper=True,
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
