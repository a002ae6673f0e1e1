"""Retrieval: the emergence of attention heads during training.

When does each attention path of a circuit emerge, and which loss does it bring down? The circuits of the trained models
are followed back through the checkpoints.

Source: stacked attention heads, section 9, Figures 6 and 7, appendix D.
"""

from dataclasses import replace
from math import inf, isfinite, nan

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import (
    CircuitFigure,
    LineFigure,
    MapFigure,
    Table,
    TimelineFigure,
    at_least,
    at_most,
    event,
    within,
)
from anchorlab.findings.view import AttentionView
from anchorlab.models import VectorSpec
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.chain_order import GUESSING_LINE, in_order, loss_curves, partials_along
from anchorlab.papers.retrieval.emergence import emerging
from anchorlab.papers.retrieval.settings import OUR_CHOICES, PASSES, on_fixed_sample, paper, paper_recipe
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, measures_in, over, precondition, reading
from anchorlab.studies.kit import along, column_table, curves_against
from anchorlab.studies.readings import of_first
from anchorlab.studies.seeds import SEARCHED
from anchorlab.training import Evaluation, Experiment

EVALUATION = Evaluation(every=80, size=1024)
"""How often and on how many sequences the losses are measured in the paper's setting.

The standard error is then 0.006 for a loss and 0.008 for the difference between training and validation loss; the step
at which a symbol is retrieved is known to a few steps of 6400.
"""

PAPER = paper(
    4,
    VectorSpec(layers=24, heads=1, width=512, head_width=16, feed_forward=False),
    paper_recipe(6400, 256, EVALUATION, checkpoints=80),
    seeds=5,
    label="twenty-four layers",
)

FOLLOWED = 0.04
"""The loss below which a model follows the chains; Transformer D has 0.031 (section 9.2)."""

RISE = 0.02
"""How far a circuit's loss may be above the model's, in the search for the circuit and in the claim `ablated`.

Transformer D's rises by 0.014, from 0.031 to 0.045 (section 9.2).
"""

SAMPLED = 4
"""How many models are trained again on a fixed sample, where the setting has none."""


def experiments(setting: Experiment) -> dict[str, Experiment]:
    """Return the setting and, if its batches are always fresh, some of its models on a fixed sample.

    Training and validation loss differ only if sequences are seen again.
    """
    if setting.recipe.data.kind == "sample":
        return {"models": setting}
    return {"models": setting, "sampled": on_fixed_sample(setting, SAMPLED, f"{setting.label}, a fixed sample")}


class Seen(Reading):
    """The circuits of all models along training."""

    models = of_first(lambda run: emerging.growths(run, RISE))  # every circuit, followed through the checkpoints

    @property
    def end(self) -> float:
        """The last step."""
        return float(self.models[0].steps[-1])

    @reading
    def behind(self) -> Float[Tensor, "falling"]:
        """How far the validation loss exceeds the training loss on a fixed sample, as in `emerging.behind`."""
        return emerging.behind(*(along(self.last, split, "loss")[1] for split in ("train", "test")))

    @reading
    def symbols(self) -> list[int]:
        """The queried symbols, in the chain's order."""
        return list(self.models[0].retrieved)

    @reading
    def retrieved(self) -> Float[Tensor, "model symbol"]:
        """The step at which each symbol is retrieved, infinite if never."""
        return torch.tensor([[one.retrieved[symbol] for symbol in self.symbols] for one in self.models])

    def retrieving(self, least: int) -> list[emerging.Growth]:
        """Return the models that retrieve at least `least` symbols within the training."""
        counts = self.retrieved.isfinite().sum(dim=1).tolist()
        return [one for one, count in zip(self.models, counts, strict=True) if count >= least]

    @reading
    def arrived(self) -> Float[Tensor, "retrieving symbol"]:
        """The step at which the last path of each symbol emerges, in models that retrieve at least two symbols.

        Infinite for a symbol that is not retrieved: that comes later than any step of the training.
        """
        times = [
            [one.arrival(symbol) if isfinite(fallen) else inf for symbol, fallen in one.retrieved.items()]
            for one in self.retrieving(2)
        ]
        return torch.tensor(times).reshape(-1, len(self.symbols))

    def over(self, values: Float[Tensor, "value"], share: bool = False) -> Measurement:
        """Return the mean of the values that are not NaN, with the number of models that have one.

        With `share` the values are 1 where something holds, else 0.
        """
        known = values[~values.isnan()]
        detail = f"{len(known)} of {len(self.models)} models"
        return over(known == 1 if share else known, "models", detail=detail)


@claim("Fig 7 right", "heads for B, then C, D and E", at_least(0.8))
def heads_in_chain_order(seen: Seen) -> Measurement:
    """Attention heads emerge in chain order.

    Share of models in which no path that x_1 needs emerges after the last path that x_2 needs, and so on, among models
    that retrieve at least two symbols; a symbol that is not retrieved within the training comes last, and a path that
    brings two symbols brings both at the same time.
    """
    return seen.over(in_order(seen.arrived), share=True)


@claim("section 9.2", "after 450 of 800 epochs, abruptly", at_most(0.25))
def abrupt(seen: Seen) -> Measurement:
    """After a long time of slow learning the first head that retrieves emerges abruptly.

    Steps in which attention along the last path that x_1 needs rises from 0.25 to 0.75, divided by the steps before;
    mean over models that retrieve x_1.
    """
    first = seen.symbols[0]
    return seen.over(torch.tensor([emerging.rise(one, first) for one in seen.models if isfinite(one.retrieved[first])]))


@claim("Fig 6 left, section 9.2", "450 of 800 epochs of slow learning", at_most(0.5))
def slow_first(seen: Seen) -> Measurement:
    """The loss falls slowly until the first symbol is retrieved, and fast from then on.

    Rate at which the validation loss falls from 1, the loss without an answer, until the first partial loss is below
    0.5, divided by its rate from then until the last partial loss is below 0.5 or the training ends; mean over models
    that retrieve at least two symbols.
    """
    return seen.over(torch.tensor([emerging.pace(one) for one in seen.retrieving(2)]))


@claim("Fig 6 left", "both drawn; no value", at_most(0.05), own=True)
def losses_together(seen: Seen) -> Measurement:
    """Training and validation loss fall together.

    Largest excess of the validation loss over the training loss, divided by the total fall of the training loss, on a
    fixed sample seen {PASSES:g} times as in the paper; mean over models whose training loss falls.
    """
    return over(seen.behind, "models")


@claim("section 9.2", "drives down the first, second, last two partial losses", at_most(0.05))
def drives_loss(seen: Seen) -> Measurement:
    """The head that emerges drives its partial loss down.

    Largest time, as a share of training, between the emergence of the last path that a retrieved symbol needs and the
    fall of its partial loss; mean over models that retrieve a symbol.
    """
    return seen.over(torch.tensor([emerging.distance(one, seen.end) / seen.end for one in seen.retrieving(1)]))


@claim("section 9.2", "head 22 reuses the induction head, 23 and 24 reuse 14, 21 and 22", at_least(0.75))
def reuse(seen: Seen) -> Measurement:
    """Later symbols reuse the heads of earlier ones.

    Share of the paths needed for a retrieved symbol that the next one needs as well, mean over symbols, then over
    models that retrieve at least two symbols.
    """
    shares = [torch.tensor(emerging.reused(one)).mean() for one in seen.retrieving(2)]  # NaN if no symbol needs a path
    return seen.over(torch.stack(shares) if shares else torch.empty(0))


@claim("section 9.2", "head 24 much later than head 23", at_least(0.8))
def later_slower(seen: Seen) -> Measurement:
    """The last head emerges much later than the one before.

    Share of models in which the time between the last two symbols' paths is longer than between the two before; a last
    symbol that is not retrieved within the training comes after its end. Judged only for chains of four steps or more,
    since head 24 brings the fourth symbol.
    """
    return seen.over(torch.tensor([emerging.slower(times, seen.end) for times in seen.arrived]), share=True)


@precondition("section 9.2", "a validation loss of 0.031", at_most(FOLLOWED), of=("ablated",))
def solved(seen: Seen) -> Measurement:
    """A model follows the chains.

    Lowest loss of any model on fresh sequences.
    """
    losses = torch.tensor([one.solution.circuit.model_loss for one in seen.models])
    return over(losses, "models", torch.min)


@claim("section 9.2", "to 0.045, by 0.014", within(0.0, RISE))
def ablated(seen: Seen) -> Measurement:
    """With all attention replaced by the circuit's, the loss of a model rises little.

    Loss with all attention replaced by the circuit's maps minus that of the model, on fresh sequences, mean over models
    with a loss of at most {FOLLOWED:g}; heads that no rule explains attend uniformly. The search stops at a rise of
    {RISE:g}, so only such heads or fresh sequences can contradict the claim.
    """
    follow = [one for one in seen.models if one.solution.circuit.model_loss <= FOLLOWED]
    return seen.over(torch.tensor([one.replaced for one in follow]))


@claim("section 9.2", "multiple paths connecting the same positions", at_least(0.75))
def same_positions(seen: Seen) -> Measurement:
    """Several paths connect the same positions.

    Share of models whose circuit has two paths with the same query and the same key in different heads, among models
    that retrieve at least two symbols.
    """
    rules = [[path.rule for path in one.solution.circuit.paths if not path.stays] for one in seen.retrieving(2)]
    return seen.over(torch.tensor([float(len(set(each)) < len(each)) for each in rules]), share=True)


def _partials(seen: Seen) -> LineFigure:
    return loss_curves(
        "Partial losses along training (Fig 6, right)",
        *partials_along(seen.first),
        "Mean squared error of each symbol of the chain on fresh sequences; mean and range over seeds.",
    )


def _circuit(seen: Seen) -> CircuitFigure:
    first = seen.models[0].solution
    caption = (
        "As in the study of circuits: an arrow leads from the key's position to the query's; its number is the loss "
        "when this path is cut and all other paths keep the attention that the model computes."
    )
    return CircuitFigure("Circuit of the first seed (Fig 7, left)", caption, (first.panel(),), seeds=str(first.seed))


def _maps(seen: Seen) -> MapFigure:
    return one_head.attention_maps(seen.first, seen.models[0].solution)


def _view(seen: Seen) -> AttentionView | None:
    if not seen.first.has_weights:
        return None
    return one_head.view_circuits(seen.first, [one.solution for one in seen.models])


def _losses(seen: Seen) -> LineFigure:
    sampled = seen.last
    steps, fresh = along(sampled, "test", "loss")
    curves = {"training sequences": along(sampled, "train", "loss")[1], "fresh sequences": fresh}
    if len(seen.runs) > 1:
        curves["fresh sequences, every batch fresh"] = along(seen.first, "test", "loss")[1]
    caption = (
        f"Mean squared error over all symbols, on a fixed sample seen {PASSES:g} times; mean and range over seeds."
    )
    return loss_curves("Training and validation loss (Fig 6, left)", steps, curves, caption, GUESSING_LINE)


def _attention(seen: Seen) -> LineFigure:
    one = seen.models[0]
    curves = {
        f"layer {path.layer}: {path.rule} [{_symbols(one.needs[path])}]": one.attention[path].unsqueeze(0)
        for path in one.solution.paths
    }
    figure = curves_against(
        "Attention along each path of the first seed (appendix D)",
        one.steps,
        curves,
        caption=f"Mean over {one_head.SEQUENCES} sequences at every checkpoint, layers counted from 0; in brackets the "
        f"symbols that need the path. A path has emerged at {emerging.EMERGED:g}.",
        x_label="step",
        y_label="attention",
        y_range=(0.0, 1.02),
    )
    return replace(figure, seeds=str(one.solution.seed))


def _symbols(symbols: frozenset[int]) -> str:
    return ", ".join(f"x_{symbol}" for symbol in sorted(symbols)) or "none alone"


def _timeline(seen: Seen) -> TimelineFigure:
    events = []
    for index, symbol in enumerate(seen.symbols):
        arrived = torch.tensor([one.arrival(symbol) for one in seen.models])
        for label, group, times in (
            (f"all paths that x_{symbol} needs", "attention above 0.5", arrived),
            (f"x_{symbol}", "partial loss below 0.5", seen.retrieved[:, index]),
        ):
            events.append(event(label, group, times.nan_to_num(nan=nan, posinf=nan)))
    caption = (
        "When the last of the paths that a symbol needs has emerged, and when its partial loss falls; by "
        "interpolation between checkpoints or evaluations. A point for each seed, a bar at the median."
    )
    return TimelineFigure("Attention paths and partial losses (Fig 7, right)", caption, "step", tuple(events), seen.end)


def _table(seen: Seen) -> Table:
    paths = [(one, path) for one in seen.models for path in one.solution.paths]
    return column_table(
        "Every path and when it emerged",
        "Symbols whose partial loss rises by 0.2 or more when the path is cut; the step at which the mean attention "
        "passes 0.5, and the attention at the end.",
        {
            **one_head.path_columns([one.solution for one in seen.models]),
            "needed for": [_symbols(one.needs[path]) for one, path in paths],
            "emerged": [one.crossing(path) for one, path in paths],
            "at the end": [float(one.attention[path][-1]) for one, path in paths],
        },
    )


STUDY = Study(
    "retrieval/emergence",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_losses, _partials, _circuit, _maps, _attention, _timeline, _table, _view),
    profiles={
        "quick": Profile(
            one_head.QUICK,
            "The models of the study of circuits, D = 3, with a checkpoint every 20 steps; training and validation "
            "loss with four of them on a fixed sample, seen as often as the paper's. The paper has one model, head "
            "size 16, D = 4, K = 4, with a checkpoint every 80 steps.",
        ),
        "scaled": Profile(
            one_head.SCALED, f"{one_head.SCALED_NOTE} Training and validation loss with both on a fixed sample."
        ),
        "paper": Profile(
            PAPER,
            f"Section 9.1, five seeds in place of one. {OUR_CHOICES} Losses are measured every 80 steps, on 1024 "
            "training and 1024 fresh sequences.",
            paper=True,
        ),
    },
    smoke=one_head.SMOKE,
    chosen_on=SEARCHED,
    keeps=lambda run, setting: [one_head.attention_maps(run, one.solution) for one in emerging.growths(run, RISE)],
)
