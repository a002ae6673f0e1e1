"""Retrieval: the circuits that models learn.

Which attention does a model need to follow a chain? Each head's attention is replaced by the simplest rule that keeps
the loss low; then every path that is not needed is cut.

Source: stacked attention heads, section 8, Figure 5 and appendix E.
"""

from collections.abc import Sequence
from math import comb, nan

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import CircuitFigure, MapFigure, Table, at_least, at_most, within
from anchorlab.findings.view import AttentionView
from anchorlab.lens import Circuit, CircuitPath, Explanation
from anchorlab.lens.circuits import AttentionLosses, Head
from anchorlab.models import VectorSpec
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.one_head import SOLVED
from anchorlab.papers.retrieval.settings import OUR_CHOICES, paper, paper_recipe, retrieval_of, spec_of
from anchorlab.studies import Measurement, Profile, Reading, Study, claim, measures_in, over, precondition, reading
from anchorlab.studies.interval import Statistic
from anchorlab.studies.kit import column_table
from anchorlab.studies.readings import of_first
from anchorlab.studies.seeds import SEARCHED
from anchorlab.theory.information_flow import Flow, least_depth
from anchorlab.training import Evaluation, TrainedRun

SUFFICES = 0.05
"""The loss below which a circuit suffices (appendix E)."""

NEEDED, CUT = 3.0, 0.17
"""The least factor by which the loss rises when a needed path is cut, and the least loss after the cut.

Appendix E gives 0.17 after the cut and less than 0.05 before it, a factor of at least 3.4; we ask for 3.
"""

DRAWN = 8  # models in the figure

EXPLAINED = f"over models with a loss below {one_head.FOLLOWED:g} whose heads are all explained"
FOLLOWING = (
    f"over models with a loss below {one_head.FOLLOWED:g}; in use are heads with a path to another position, and heads "
    "that no rule explains"
)
SOLVED_AND_EXPLAINED = f"over models with a loss below {SOLVED:g} whose heads are all explained"

EVALUATION = Evaluation(every=800, size=1024, splits=("test",))
"""How often and on how many sequences the paper's setting measures its loss; claims read the circuits' own losses."""

PAPER = paper(
    3, VectorSpec(layers=12, heads=1, width=128), paper_recipe(24_000, 128, EVALUATION), seeds=3, label="twelve layers"
)


class Seen(Reading):
    """The circuits of the models that did not diverge."""

    models = of_first(lambda run: one_head.solutions(run, SUFFICES - SOLVED))  # the circuit of every model
    steps = of_first(lambda run: retrieval_of(run).steps)  # of the chains
    layers = of_first(lambda run: spec_of(run).layers)  # of the models

    @reading
    def first_uniform(self) -> Sequence[float]:
        """The loss of each circuit, on fresh sequences, with uniform attention in its first useful heads."""
        losses = self.first.reading("loss with the first heads uniform", self._first_uniform)
        return [float(losses[one.member]) for one in self.models]

    def _first_uniform(self, run: TrainedRun) -> Float[Tensor, "member"]:
        task, ensemble = retrieval_of(run), run.ensemble()
        fresh, losses = task.sample("test", 256, seed=1), torch.full((len(run.experiment.members),), nan).double()
        for one in self.models:
            first = one_head.first_useful(one.circuit, self.steps)
            changed = {**one.circuit.explanations, **dict.fromkeys(first, Explanation("uniform"))}
            losses[one.member] = AttentionLosses(ensemble.select([one.member]), task, fresh).loss(changed)
        return losses

    @property
    def explained(self) -> list[Circuit]:
        """The circuits that explain every head, of models that follow the chains."""
        return [one.circuit for one in self.models if one.explained]

    @property
    def followed(self) -> list[Circuit]:
        """The circuits of models that follow the chains, including circuits with heads that no rule explains."""
        return [one.circuit for one in self.models if one.follows]

    @property
    def least(self) -> int:
        """The least number of layers that can follow the chain, with one head each and a causal mask."""
        return least_depth(self.steps, Flow(causal=True, heads=1))

    def over(self, values: Sequence[float] | Sequence[bool], taken: Statistic | None = None) -> Measurement | None:
        """Return a measurement from one value for each of several models, as `claim.over`; None without values."""
        kind = torch.bool if all(isinstance(value, bool) for value in values) else torch.double
        detail = f"{len(values)} of {len(self.models)} models"
        return over(torch.tensor(values, dtype=kind), "models", taken, detail) if values else None


@precondition(
    "section 8.2", "less than 0.01", at_most(SOLVED), of=("suffices", "needed-as-printed", "first-is-indirect")
)
def solved(seen: Seen) -> Measurement | None:
    """A model solves the problem.

    Lowest loss of any model on fresh sequences.
    """
    return seen.over([one.circuit.model_loss for one in seen.models], torch.min)


@claim("appendix E", "below 0.05 for all transformers", at_least(0.8))
def suffices(seen: Seen) -> Measurement | None:
    """With all attention replaced by the circuit's, the loss stays below 0.05.

    Share of models whose circuit explains every head and has a loss below {SUFFICES:g} on fresh sequences, among models
    with a loss below {SOLVED:g}; the search stops at this loss, so only an unexplained head or fresh sequences can
    contradict the claim.
    """
    circuits = [one.circuit for one in seen.models if one.solved]
    return seen.over([one.loss < SUFFICES and not one.unexplained for one in circuits])


@claim("section 8.2", "only a few, whose behaviour is easily interpretable", at_least(0.9))
def few_do_all(seen: Seen) -> Measurement | None:
    """Only a few attention heads are responsible for the information flow.

    Mean share of attention's effect on the loss that is lost when only the queries of the circuit's paths attend
    uniformly and all other attention stays, {EXPLAINED}.
    """
    return seen.over([one.completeness for one in seen.explained])


@claim(
    "our question; appendix E",
    "no value: it replaces other attention and exempts the first heads",
    at_least(0.8),
    own=True,
)
def needed(seen: Seen) -> Measurement | None:
    """No path of the circuit is superfluous.

    Share of models in which cutting any path of a useful head raises the circuit's loss at least {NEEDED:g} times, with
    the model's own attention along the other paths, {EXPLAINED}.
    """
    cheapest = [(one, min(path.cut_loss for path in _useful_paths(one))) for one in seen.explained]
    return seen.over([cut / one.live_loss >= NEEDED for one, cut in cheapest])


def _useful_paths(circuit: Circuit, but: Sequence[Head] = ()) -> list[CircuitPath]:
    return [path for head, paths in one_head.useful_heads(circuit).items() if head not in but for path in paths]


@claim("appendix E", "0.17 to 0.89", at_least(0.8))
def needed_as_printed(seen: Seen) -> Measurement | None:
    """With all other attention replaced, cutting any path of the later heads raises the loss to 0.17 and more.

    Share of models in which cutting any path of a useful head above the first ones, which only join pairs, gives a loss
    of at least {CUT:g}, {SOLVED_AND_EXPLAINED}.
    """
    circuits = [one.circuit for one in seen.models if one.solved and one.explained]
    later = [_useful_paths(one, but=one_head.first_useful(one, seen.steps)) for one in circuits]
    return seen.over([min(path.mapped_cut_loss for path in paths) >= CUT for paths in later if paths])


@claim(
    "appendix E",
    "the only exceptions are the first useful layers: 0.05 to 0.1 with uniform attention there",
    within(0.05, 0.1),
)
def first_is_indirect(seen: Seen) -> Measurement | None:
    """With all attention replaced, the first useful layers are hardly missed: they let later heads find their place.

    Mean loss of a circuit whose first useful heads, those that only join pairs, attend uniformly,
    {SOLVED_AND_EXPLAINED}.
    """
    both = zip(seen.models, seen.first_uniform, strict=True)
    return seen.over([loss for one, loss in both if one.solved and one.explained])


@claim("section 8.2", "in all three transformers", at_least(0.8))
def first_joins_pair(seen: Seen) -> Measurement | None:
    """The first useful head joins the two members of each pair.

    Share of models in which every path of the circuit's first useful head goes from the second member of a pair to the
    first, {EXPLAINED}; a head whose queries attend to themselves alone is idle.
    """
    first = [next(iter(one_head.useful_heads(one).values())) for one in seen.explained]
    return seen.over([{path.rule for path in paths} <= one_head.joining(seen.steps) for paths in first])


@claim("section 8.2", "8 of 12 heads", at_least(0.5))
def few_heads(seen: Seen) -> Measurement | None:
    """Most attention heads do not perform any useful computation.

    Mean share of heads that are not in use, {FOLLOWING}; judged only if the models have at least twice as many layers
    as the paper's models have useful heads: one more than the least number of layers.
    """
    circuits = seen.followed if seen.layers >= 2 * (seen.least + 1) else []
    return seen.over([1 - _in_use(one) / len(one.explanations) for one in circuits])


@claim("section 8.2", "4 heads where 3 would do, in all three", at_least(0.8))
def more_than_least(seen: Seen) -> Measurement | None:
    """The models use more heads than the least number.

    Share of models with more heads in use than the least number of layers with one head each and a mask, {FOLLOWING}.
    """
    return seen.over([_in_use(one) > seen.least for one in seen.followed])


def _in_use(circuit: Circuit) -> int:
    """Return the number of heads in use: with a path to another position, or with their own attention kept."""
    return len({*circuit.useful_heads, *circuit.unexplained})


@claim("section 8.2", "very different", at_least(0.5))
def differ(seen: Seen) -> Measurement | None:
    """Except for the first head the circuits are very different.

    Share of pairs of models whose useful heads above the first ones differ in their paths, compared in order and
    ignoring layers, {EXPLAINED}.
    """
    later = [later_rules(one, seen.steps) for one in seen.explained]
    if len(later) < 2:
        return None
    others = [sum(one != other for other in later) / (len(later) - 1) for one in later]  # of each model
    return over(torch.tensor(others, dtype=torch.double), "models", detail=f"{comb(len(later), 2)} pairs")


def later_rules(circuit: Circuit, steps: int) -> list[frozenset[str]]:
    """Return the rules of each useful head above the first ones, in order."""
    first = one_head.first_useful(circuit, steps)
    return [
        frozenset(str(path.rule) for path in paths)
        for head, paths in one_head.useful_heads(circuit).items()
        if head not in first
    ]


def _circuits(seen: Seen) -> CircuitFigure:
    return CircuitFigure(
        title="Circuits of models with one head in each layer (Fig 5)",
        caption="Positions of one query's chain from left to right, layers from below, counted from 0. An arrow leads "
        "from the key's position to the query's; its number is the loss when this path is cut and all other paths "
        f"keep the attention that the model computes. The first {DRAWN} models.",
        panels=tuple(one.panel() for one in seen.models[:DRAWN]),
    )


def _maps(seen: Seen) -> MapFigure:
    return one_head.attention_maps(seen.first, seen.models[0])


def _view(seen: Seen) -> AttentionView | None:
    if not seen.first.has_weights:
        return None
    return one_head.view_circuits(seen.first, seen.models, steps=seen.first.checkpoints[-1:])


def _models(seen: Seen) -> Table:
    circuits = [one.circuit for one in seen.models]
    return column_table(
        "Circuits in numbers",
        "Layers, from 0, of the heads with a path to another position. Losses on fresh sequences: of the model; of the "
        "circuit with its maps in place; live, with its queries attending as the model computes; with all attention "
        "uniform; and of the circuit's maps with its first useful heads uniform. Faithfulness: the share of "
        "attention's effect on the loss that the circuit retains. Completeness: the share that vanishes without the "
        "circuit's paths. Minimality: the factor by which the cheapest cut raises the live loss.",
        {
            "seed": [one.seed for one in seen.models],
            "layers": [", ".join(str(layer) for layer, _ in sorted(one.useful_heads)) or "none" for one in circuits],
            "paths": [len(one.paths) for one in circuits],
            "unexplained": [len(one.unexplained) for one in circuits],
            "model": [one.model_loss for one in circuits],
            "circuit": [one.loss for one in circuits],
            "live": [one.live_loss for one in circuits],
            "uniform": [one.empty_loss for one in circuits],
            "first uniform": seen.first_uniform,
            "faithful": [one.faithfulness for one in circuits],
            "complete": [one.completeness for one in circuits],
            "minimal": [one.minimality for one in circuits],
        },
    )


def _paths(seen: Seen) -> Table:
    paths = [path for one in seen.models for path in one.paths]
    return column_table(
        "Every path",
        "The model's own mean attention along the path, and the circuit's loss without the path: with all other paths "
        "attending as the model computes, and with their maps in place, as in the paper.",
        {
            **one_head.path_columns(seen.models),
            "attention": [path.attention for path in paths],
            "cut, live": [path.cut_loss for path in paths],
            "cut, maps": [path.mapped_cut_loss for path in paths],
        },
    )


STUDY = Study(
    "retrieval/circuits",
    __doc__,
    measures_in(__name__),
    trains=lambda setting: {"models": setting},
    reads=Seen,
    draws=(_circuits, _maps, _models, _paths, _view),
    profiles={
        "quick": Profile(
            one_head.QUICK,
            "D = 3, N = 4 and K = 8, where the paper has K = 4; initial scale 0.15; position vectors of eight "
            "neighbours nearly orthogonal.",
        ),
        "scaled": Profile(one_head.SCALED, one_head.SCALED_NOTE),
        "paper": Profile(
            PAPER,
            f"Section 8.1. {OUR_CHOICES} The loss is measured every 800 steps, on 1024 fresh sequences.",
            paper=True,
        ),
    },
    smoke=one_head.SMOKE,
    chosen_on=SEARCHED,
    keeps=lambda run, setting: (_maps(seen := Seen({"models": run})), seen.first_uniform),
)
