"""Language models along training: when "the" and the right word are learned, and when heads shift and induce.

At each checkpoint of a training run, the model is asked for indirect objects and facts, with and without one input
matrix of a feed-forward layer cut to low rank, and for the word after a preposition; its heads are scored. One
checkpoint at a time is on the disk; checkpoints with weights of another step, with values that are not finite, or with
another precision than declared are listed as faulty.

Source: truncated weights, section 3, Figures 2 and 13, appendix B; stacked attention heads, sections 8.2 and 9.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from anchorlab.findings import at_least, at_most, within
from anchorlab.findings.provenance import seeds_text
from anchorlab.language.checkpoints import PYTHIA_STEPS
from anchorlab.papers.language.along_training.checkpoints import HERE, Checkpoint, Setting, measure_trainings
from anchorlab.papers.language.along_training.curves import Curves, at_shared_steps, figures, tables
from anchorlab.papers.language.along_training.measuring import Measuring
from anchorlab.papers.language.along_training.trained_here import Training
from anchorlab.studies import SEARCHED, ObservationContext, Observed, Profile, Study, fresh
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.kit import MEAN_AND_RANGE


@dataclass(frozen=True)
class Seen:
    """The measurements of every training."""

    trainings: tuple[Curves, ...]

    def untrained(self) -> "Seen | None":
        """Return what would be measured if training changed nothing; None if a training's step 0 was not measured."""
        found = [one.untrained() for one in self.trainings]
        return None if None in found else Seen(tuple(one for one in found if one is not None))

    def over(self, read: Callable[[Curves], float | None]) -> Measurement:
        """Return the mean over trainings of a quantity; not measured if some training has none."""
        found = [read(one) for one in self.trainings]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            return Measurement(None, detail=f"{len(values)} of {len(found)} trainings have a value")
        return over(torch.tensor(values, dtype=torch.float64), "trainings")

    def step(self, read: Callable[[Curves], int | None]) -> Measurement:
        """Return the median over trainings of the step that `read` finds; a training without one comes last."""
        found = [read(one) for one in self.trainings]
        reached = [step for step in found if step is not None]
        detail = f"{len(reached)} of {len(found)} trainings get there"
        if not reached:
            return Measurement(None, detail=detail)
        never = NEVER * max(one.steps[-1] for one in self.trainings)
        steps = torch.tensor([never if step is None else step for step in found], dtype=torch.float64)
        return over(steps, "trainings", lambda values: values.quantile(0.5), detail)


NEVER = 10
"""A step that never comes counts as this multiple of the last measured step, beyond every band."""

TOP = 10
"""The mean rank up to which "the" counts as one of the top predictions."""

PAPER_STEP = 14_000
"""The step at which the paper compares the model with and without truncation."""


@claim("truncated weights, appendix B.1, Fig 13 left", "around 10 steps", within(2, 64))
def the_after_prepositions(seen: Seen) -> Measurement:
    """ "the" becomes one of the top predictions after a preposition alone.

    First measured step at which the mean rank of "the" after 30 prepositions is at most {TOP}, median over trainings.
    """
    return seen.step(lambda one: one.first(lambda now: now["rank after prepositions"] <= TOP))


@claim("truncated weights, appendix B.1, Fig 13 right", "around 10 steps", within(2, 64))
def the_after_sentences(seen: Seen) -> Measurement:
    """ "the" becomes one of the top predictions after a sentence that ends in a preposition.

    First measured step at which the mean rank of "the" after 40 sentences is at most {TOP}, median over trainings.
    """
    return seen.step(lambda one: one.first(lambda now: now["rank after sentences"] <= TOP))


@claim("truncated weights, section 3 and Fig 2 left", "about 10 steps against over 500", at_least(10))
def the_before_objects(seen: Seen) -> Measurement:
    """In sentences about indirect objects "the" is learned much earlier than the object.

    Step at which the probability of the object reaches half its maximum over training, divided by that for "the".
    """
    return seen.over(lambda one: _later(one.learned("objects: the"), one.learned("objects: right")))


@claim("truncated weights, section 3 (phase ii)", "almost the same", at_most(0.05))
def object_as_subject(seen: Seen) -> Measurement:
    """Between 10 and 1000 steps the model gives object and subject almost the same output.

    Largest difference between the mean probabilities of object and subject, at the measured steps 10 to 1000.
    """

    def apart(one: Curves) -> float | None:
        rows = [one.numbers.get(name, ()) for name in ("objects: right", "objects: subject")]
        pairs = zip(one.steps, *rows, strict=True)
        return max((abs(right - subject) for step, right, subject in pairs if 10 <= step <= 1000), default=None)

    return seen.over(apart)


@claim("truncated weights, section 3 (phase iii)", "after 2000 steps", within(1000, 8000))
def object_preferred(seen: Seen) -> Measurement:
    """From some step on, the model prefers the object to the subject and to "the".

    First measured step from which on the mean probability of the object exceeds that of the subject and of "the",
    median over trainings.
    """
    right, others = "objects: right", ("objects: subject", "objects: the")
    return seen.step(lambda one: one.from_on(lambda now: all(now[right] > now[other] for other in others)))


@claim("truncated weights, Fig 2 left", "from 2.3 to 12.3 times as likely at step 14 000, 5.3 times", at_least(2))
def objects_ratio(seen: Seen) -> Measurement:
    """Truncation raises the probability of the object relative to "the".

    Mean probability of the object over that of "the" at the last measured step up to {PAPER_STEP}: ratio with the
    truncation divided by that without.
    """
    return seen.over(lambda one: _raised(one, "objects"))


@claim(
    "truncated weights, section 3 and Fig 2 right",
    "early learning of the generic answer, the factual one later",
    at_least(2),
)
def the_before_facts(seen: Seen) -> Measurement:
    """Asked for a fact, the model learns "the" before the right word.

    Step at which the probability of the right country reaches half its maximum, divided by that for "the".
    """
    return seen.over(lambda one: _later(one.learned("facts: the"), one.learned("facts: right")))


@claim("truncated weights, Fig 2 right", "from 0.16 to 11.3 times as likely at step 14 000, 70 times", at_least(2))
def facts_ratio(seen: Seen) -> Measurement:
    """Truncation raises the probability of the right word relative to "the".

    Mean probability of the right country over that of "the" at the last measured step up to {PAPER_STEP}: ratio with
    the truncation divided by that without.
    """
    return seen.over(lambda one: _raised(one, "facts"))


@claim(
    "stacked attention heads, 8.2 and 9",
    "heads emerge one by one, the one that connects a token with the one before first",
    at_least(1),
)
def previous_token_first(seen: Seen) -> Measurement:
    """A head that attends to the previous token emerges before the first induction head.

    First step with an induction head, divided by that with a head that shifts by one, on repeated random tokens.
    """
    return seen.over(
        lambda one: _later(
            one.first(lambda now: now["heads that shift by one"] > 0),
            one.first(lambda now: now["heads that induce"] > 0),
        )
    )


def _later(one: int | None, other: int | None) -> float | None:
    return None if not one or other is None else other / one


def _raised(curves: Curves, kind: str) -> float | None:
    until = [place for place, step in enumerate(curves.steps) if step <= PAPER_STEP]
    if not until:
        return None
    before, after = (
        curves.numbers[f"{model}: right"][until[-1]] / curves.numbers[f"{model}: the"][until[-1]]
        for model in (kind, f"{kind}, cut")
    )
    return after / before


@dataclass(frozen=True, kw_only=True)
class ObservedTrainings(Observed[Seen]):
    """The measurements of every training, and its checkpoints."""

    checkpoints: tuple[Checkpoint, ...]

    @property
    def shown(self) -> Sequence[Curves]:
        """The measurements of every training at the steps that all trainings share."""
        return at_shared_steps(self.seen.trainings)


def observe(setting: Setting, context: ObservationContext) -> ObservedTrainings:
    """Measure the checkpoints of every training."""
    return observed(measure_trainings(setting, context), setting)


def observed(trainings: Sequence[Sequence[Checkpoint]], setting: Setting) -> ObservedTrainings:
    """Return what the checkpoints of every training show."""
    seen, checkpoints = Seen(tuple(map(Curves.of, trainings))), tuple(chain(*trainings))
    models = [one.model for one in checkpoints if one.model]
    measured = sum(len(one.steps) for one in seen.trainings)
    return ObservedTrainings(
        seen=seen,
        untrained=seen.untrained(),
        model=f"{models[-1]}, {measured} checkpoints" if models else setting.model,
        seeds=seeds_text(setting.seeds) if setting.seeds else "0",
        checkpoints=checkpoints,
    )


OWN_STEPS = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000, 1500, 2000)
"""The 20 checkpoints of models trained here."""

OF_PYTHIA_1B = ("the-before-objects", "object-as-subject", "object-preferred", "objects-ratio")

STUDY = Study(
    name="language/along-training",
    doc=__doc__,
    claims=measures_in(__name__),
    draws=[
        lambda observed: figures(observed.shown, f" {MEAN_AND_RANGE}" if len(observed.seen.trainings) > 1 else ""),
        lambda observed: tables([(one.step, one.faults) for one in observed.checkpoints], observed.shown),
    ],
    profiles={
        "paper": Profile(
            Setting("EleutherAI/pythia-1b", steps=PYTHIA_STEPS),
            "The paper's model of Figure 2, Pythia-1B at all 154 checkpoints, with its truncations; 149 facts in place "
            "of one.",
            paper=OF_PYTHIA_1B,
        ),
        "scaled": Profile(
            Setting(), "Pythia-160M at 19 of its 154 checkpoints, truncated at the same depth as the paper's Pythia-1B."
        ),
        "quick": Profile(
            Setting(HERE, None, OWN_STEPS, seeds=fresh(40)),
            "GPT-NeoX models of two layers, 0.4 M parameters, trained here on generated sentences, a page of prose and "
            "verse. After a quarter of the sentences about indirect objects and half of the sentences about countries "
            '"the" follows in place of the name. The models show what training on such text does, not what a published '
            "model does.",
        ),
    },
    smoke=Setting(
        HERE,
        None,
        (0, 1, 2, 4),
        Measuring(6, 8, 2, 16, 4, 2),
        seeds=fresh(2),
        training=Training(sentences=300, vocabulary=600, layers=2, width=16, batch=2),
    ),
    observe=observe,
    chosen_on=SEARCHED,
)
