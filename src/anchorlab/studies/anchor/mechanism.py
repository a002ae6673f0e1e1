"""How a two-layer model solves the identity anchor function, part by part.

Source: anchor functions, appendix B, Figures 20 to 27.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from anchorlab.findings import (
    Claim,
    Findings,
    Provenance,
    Table,
)
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor import identity
from anchorlab.studies.anchor.mechanism_figures import MIDDLE, figures
from anchorlab.studies.anchor.mechanism_measures import (
    INPUTS,
    STAGES,
    FirstAttention,
    Projection,
    SecondAttention,
    Stages,
    first_attention,
    follow_stages,
    key_positions,
    project_others,
    second_attention,
    spread_and_distance,
)
from anchorlab.studies.anchor.settings import paper_recipe
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import Batch, task
from anchorlab.training import Experiment, Members, TrainedRun

_LOOKED_AT = 500
_ITEMS = range(20, 101)
_B2, _B3, _B4, _B5 = (f"anchor functions, appendix B.{section}" for section in range(2, 6))
_SEEDS = "mean over test sequences and seeds"


def _claim(
    name: str, says: str, source: str, paper: str, measured: str, low: float | None, high: float | None
) -> Claim:
    return Claim(f"anchor/mechanism/{name}", says, source, paper, measured, (low, high))


CLAIMS = (
    _claim("learned", "The model solves the task", _B2, "implied", "test accuracy, mean over seeds", 0.95, 1.0),
    _claim(
        "positions",
        "The first layer's attention is determined mainly by positions",
        f"{_B2}, Fig 21",
        "mainly",
        f"total variation between its rows and those made from positions alone, {_SEEDS}",
        None,
        0.3,
    ),
    _claim(
        "not-tokens",
        "Tokens alone do not make it",
        f"{_B2}, Fig 21",
        "implied: mainly by positions",
        f"the same distance for tokens alone minus that for positions alone, {_SEEDS}",
        0.2,
        None,
    ),
    _claim(
        "query-meets-key",
        "The query of each position has the direction of the key of the one before",
        f"{_B2}, Fig 21d (which counts the other way round)",
        "almost the same",
        "share of positions whose Q(Xpos) is nearest in direction to K(Xpos) of the position before, mean over seeds",
        0.8,
        1.0,
    ),
    _claim(
        "exact-shift",
        "With the exact shift in place of the first attention, predictions stay",
        f"{_B2}",
        "remain correct",
        f"share of predictions that stay, {_SEEDS}",
        0.95,
        1.0,
    ),
    _claim(
        "no-norm",
        "The layer norm after the first attention does not matter",
        f"{_B2}",
        "does not impact the results",
        f"share of predictions that stay without it, {_SEEDS}",
        0.95,
        1.0,
    ),
    _claim(
        "aligns",
        "The feed-forward network aligns the positions that do not hold the key",
        f"{_B3}, Fig 23",
        "parallel",
        f"cosine between them after the last stage, input X(1) + Xpr, {_SEEDS}",
        0.8,
        1.0,
    ),
    _claim(
        "aligns-there",
        "That appears only within it",
        f"{_B3}, Fig 23",
        "not immediately apparent before",
        f"that cosine minus the one at the input, {_SEEDS}",
        0.2,
        None,
    ),
    _claim(
        "orthogonal",
        "It makes the key's position orthogonal to the others",
        f"{_B3}, Fig 23",
        "as orthogonal as possible",
        f"cosine between the key's position and the others after the last stage, {_SEEDS}",
        -0.3,
        0.3,
    ),
    _claim(
        "concentrates",
        "What attention adds draws the others together",
        f"{_B3}, Fig 24",
        "relatively concentrated",
        "spread of the others' outputs with input X(1) + Xpr over that with X(1), mean over seeds",
        None,
        0.8,
    ),
    _claim(
        "moves-away",
        "It moves the key's position away from them",
        f"{_B3}, Fig 24",
        "farther away",
        "distance of the key's output from the others' centre with input X(1) + Xpr over that with X(1), mean over "
        "seeds",
        1.2,
        None,
    ),
    _claim(
        "reads-key",
        "Before mask and softmax, the second layer's scores are greatest in the key's column",
        f"{_B4}, Fig 25a",
        "every row",
        f"share of rows, {_SEEDS}",
        0.9,
        1.0,
    ),
    _claim(
        "two-directions",
        "Its queries have one direction but for the key's, and so have its keys",
        f"{_B4}, Fig 26",
        "approximately two directions",
        f"cosine between the queries of other positions, and between their keys; the mean of both, {_SEEDS}",
        0.9,
        1.0,
    ),
    _claim(
        "opposite",
        "Those directions of queries and keys are opposite",
        f"{_B4}, Fig 26",
        "roughly opposite",
        f"cosine between a query and a key of other positions, {_SEEDS}",
        None,
        -0.5,
    ),
    _claim(
        "same-side",
        "The key's query is on the side of the others'",
        f"{_B4}, below equation (8)",
        "their product is positive",
        "share of sequences, mean over seeds",
        0.9,
        1.0,
    ),
    _claim(
        "longer",
        "The others' queries are longer than the key's",
        f"{_B4}, below equation (8)",
        "longer",
        f"ratio of their norms, {_SEEDS}",
        1.0,
        None,
    ),
    _claim(
        "items",
        "Through the projection, a position without the key favours the items 20 to 100",
        f"{_B5}, Fig 27",
        "greater than other tokens",
        "probability of an item over that of another token, means over items, over other tokens, test sequences and "
        "seeds",
        1.0,
        None,
    ),
    _claim(
        "no-choice",
        "It does not choose among them",
        f"{_B5}, Fig 27",
        "approximately the same",
        f"entropy over the items, over that of an even choice, {_SEEDS}",
        0.9,
        1.0,
    ),
)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Every statement of appendix B as a number over all seeds, and its figures for the first seed."""
    (run,) = runs
    ensemble, batch = run.ensemble(), run.experiment.task.sample("test", _LOOKED_AT, seed=0)
    first, second = first_attention(ensemble, batch), second_attention(ensemble, batch)
    stages = follow_stages(ensemble, batch, MIDDLE)
    projection = project_others(ensemble, batch, _ITEMS)
    measured = _measured(at_end(run, "test", "accuracy"), first, second, stages, projection, batch)
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Sequences of nine tokens hold the anchor 3 once, and the answer, the key, is the token after it. X(1) "
        f"is the stream before the first attention, Xpr what that adds to it. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=tuple(figures(run, ensemble, batch, first, stages, projection)),
        tables=(_table(run, measured), _stage_table(stages)),
    )


def _measured(
    accuracy: Tensor,
    first: FirstAttention,
    second: SecondAttention,
    stages: Mapping[str, Stages],
    projection: Projection,
    batch: Batch,
) -> dict[str, Tensor | None]:
    alone, whole = (stages[name] for name in (INPUTS[0], INPUTS[2]))
    (spread_alone, away_alone), (spread, away) = (
        spread_and_distance(one.outputs, key_positions(batch)) for one in (alone, whole)
    )
    return {
        "learned": accuracy,
        "positions": first.positions_apart,
        "not-tokens": first.tokens_apart - first.positions_apart,
        "query-meets-key": first.matched,
        "exact-shift": first.shifted_agrees,
        "no-norm": first.unnormalised_agrees,
        "aligns": whole.others[:, -1],
        "aligns-there": whole.others[:, -1] - whole.others[:, 0],
        "orthogonal": whole.key[:, -1],
        "concentrates": spread / spread_alone,
        "moves-away": away / away_alone,
        "reads-key": second.to_key,
        "two-directions": (second.queries + second.keys) / 2,
        "opposite": second.opposite,
        "same-side": second.same_side,
        "longer": second.longer,
        "items": projection.favour,
        "no-choice": projection.evenness,
    }


def _table(run: TrainedRun, measured: Mapping[str, Tensor | None]) -> Table:
    known = {name: values for name, values in measured.items() if values is not None}
    return Table(
        title="Every number, seed by seed",
        caption=f"On {_LOOKED_AT} test sequences; columns are named as the claims are.",
        columns=("seed", *known),
        rows=tuple(
            (seed, *(float(values[index]) for values in known.values()))
            for index, seed in enumerate(run.experiment.members.seeds)
        ),
    )


def _stage_table(stages: Mapping[str, Stages]) -> Table:
    return Table(
        title="Cosine between positions, stage by stage",
        caption="Means over test sequences and seeds: among the positions that do not hold the key, and between these "
        "and the key's.",
        columns=("input", "pairs", *STAGES),
        rows=tuple(
            (name, pairs, *(float(value) for value in values.mean(dim=0)))
            for name, found in stages.items()
            for pairs, values in (("others", found.others), ("key and others", found.key))
        ),
    )


STUDY = Study(
    name="anchor/mechanism",
    title="Mechanism: how two layers solve the identity anchor function, part by part",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            lambda: identity.quick_experiments(sizes=(2000,)),
            "Quick profile: two layers of one head, width 64, 600 steps of batch 50 on 2000 sequences, ten seeds: runs "
            "of the identity study. The paper's model is 400 wide and trained for 4000 epochs at up to 2e-4.",
        ),
        "paper": Profile(
            lambda: [
                Experiment(
                    task("anchor/identity"),
                    DecoderSpec(layers=2, heads=1),
                    paper_recipe(2000),
                    Members(seeds=tuple(range(5))),
                    "identity, two layers of one head",
                )
            ],
            "Paper profile: two layers of one head, width 400, 4000 epochs. The paper shows one model and does not say "
            "how many sequences it was trained on: five seeds and 2000 here.",
        ),
        "smoke": Profile(
            lambda: identity.quick_experiments(sizes=(200,), steps=4, seeds=2), "Smoke profile: four steps, for tests."
        ),
    },
    analyse=analyse,
)
