"""Language models along training: when "the" and the right word are learned, and when heads shift and induce.

At each published checkpoint of one training run, the model is asked for indirect objects, facts and the word after a
preposition, with and without one input matrix of a feed-forward layer cut to low rank, and its heads are scored. One
checkpoint at a time is on the disk; faulty ones, with weights of another step, values that are not finite, or another
precision than declared, are listed.

Source: truncated weights, section 3, Figures 2 and 13, appendix B; stacked attention heads, sections 8.2 and 9.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anchorlab.findings import at_least, at_most, within
from anchorlab.language.checkpoints import PYTHIA_STEPS
from anchorlab.papers.language.along_training.checkpoints import Checkpoint, Setting, observe
from anchorlab.papers.language.along_training.curves import figures, tables
from anchorlab.papers.language.along_training.measuring import Measuring
from anchorlab.papers.pretrained.opening import TINY
from anchorlab.studies import Analysis, Measurement, Profile, Study, claim, measures_in


@dataclass(frozen=True)
class Seen:
    """The measurements at the steps whose checkpoints are usable."""

    steps: tuple[int, ...]  # the training steps, in increasing order
    numbers: Mapping[str, tuple[float, ...]]  # by name, the value at each step

    @staticmethod
    def of(checkpoints: Sequence[Checkpoint]) -> "Seen":
        """Collect the measurements of the usable checkpoints."""
        usable = [(one.step, one.numbers) for one in checkpoints if one.numbers is not None]
        names = usable[0][1] if usable else {}
        return Seen(
            tuple(step for step, _ in usable), {name: tuple(each[name] for _, each in usable) for name in names}
        )

    def untrained(self) -> "Seen | None":
        """Return step 0's values at every step, as if training changed nothing; None if step 0 was not measured."""
        if self.steps[:1] != (0,):
            return None
        return replace(self, numbers={name: (row[0],) * len(row) for name, row in self.numbers.items()})

    def first(self, holds: Callable[[Mapping[str, float]], bool]) -> int | None:
        """Return the first step at which a condition on the numbers holds; None if it never does."""
        for place, step in enumerate(self.steps):
            if holds({name: row[place] for name, row in self.numbers.items()}):
                return step
        return None

    def learned(self, name: str) -> int | None:
        """Return the first step at which a probability is half its largest; None if training did not raise it."""
        row = self.numbers.get(name, ())
        found = None if not row else self.first(lambda now: now[name] >= max(row) / 2)
        return found or None  # a model that has not been trained has learned nothing


TOP = 10
"""The mean rank up to which "the" counts as one of the top predictions."""

PAPER_STEP = 14_000
"""The step at which the paper compares the model with and without truncation."""


@claim("truncated weights, appendix B.1, Fig 13 left", "around 10 steps", within(2, 64))
def the_after_prepositions(seen: Seen) -> Measurement:
    """ "the" becomes one of the top predictions after a preposition alone.

    First measured step at which the mean rank of "the" after 30 prepositions is at most {TOP}.
    """
    return _step(seen.first(lambda now: now["rank after prepositions"] <= TOP))


@claim("truncated weights, appendix B.1, Fig 13 right", "around 10 steps", within(2, 64))
def the_after_sentences(seen: Seen) -> Measurement:
    """ "the" becomes one of the top predictions after a sentence that ends in a preposition.

    First measured step at which the mean rank of "the" after 40 sentences is at most {TOP}.
    """
    return _step(seen.first(lambda now: now["rank after sentences"] <= TOP))


@claim("truncated weights, section 3 and Fig 2 left", "about 10 steps against over 500", at_least(10))
def the_before_objects(seen: Seen) -> Measurement:
    """In sentences about indirect objects "the" is learned much earlier than the object.

    Step at which the probability of the object reaches half its maximum over training, divided by that for "the".
    """
    return _later(seen.learned("objects: the"), seen.learned("objects: right"))


@claim("truncated weights, section 3 (phase ii)", "almost the same", at_most(0.05))
def object_as_subject(seen: Seen) -> Measurement:
    """Between 10 and 1000 steps the model gives object and subject almost the same output.

    Largest difference between the mean probabilities of object and subject, at the measured steps 10 to 1000.
    """
    rows = [seen.numbers.get(name, ()) for name in ("objects: right", "objects: subject")]
    pairs = zip(seen.steps, *rows, strict=True)
    apart = {step: abs(right - subject) for step, right, subject in pairs if 10 <= step <= 1000}
    if not apart:
        return Measurement(None)
    worst = max(apart, key=lambda step: apart[step])
    return Measurement(apart[worst], detail=f"at step {worst}")


@claim("truncated weights, section 3 (phase iii)", "after 2000 steps", within(1000, 8000))
def object_preferred(seen: Seen) -> Measurement:
    """The model then prefers the object to the subject and to "the".

    First measured step at which the mean probability of the object exceeds that of the subject and of "the".
    """
    right, others = "objects: right", ("objects: subject", "objects: the")
    return _step(seen.first(lambda now: all(now[right] > now[other] for other in others)))


@claim("truncated weights, Fig 2 left", "from 2.3 to 12.3 times as likely at step 14 000, 5.3 times", at_least(2))
def objects_ratio(seen: Seen) -> Measurement:
    """Truncation raises the object over "the".

    Mean probability of the object over that of "the" at step {PAPER_STEP}: ratio with the truncation divided by that
    without.
    """
    return _raised(seen, "objects")


@claim(
    "truncated weights, section 3 and Fig 2 right",
    "early learning of the generic answer, the factual one later",
    at_least(2),
)
def the_before_facts(seen: Seen) -> Measurement:
    """Asked for a fact, the model learns "the" before the right word.

    Step at which the probability of the right country reaches half its maximum, divided by that for "the".
    """
    return _later(seen.learned("facts: the"), seen.learned("facts: right"))


@claim("truncated weights, Fig 2 right", "from 0.16 to 11.3 times as likely at step 14 000, 70 times", at_least(2))
def facts_ratio(seen: Seen) -> Measurement:
    """Truncation raises the right word over "the".

    Mean probability of the right country over that of "the" at step {PAPER_STEP}: ratio with the truncation divided by
    that without.
    """
    return _raised(seen, "facts")


@claim(
    "stacked attention heads, 8.2 and 9",
    "heads emerge one by one, the one that connects a token with the one before first",
    at_least(1),
)
def previous_token_first(seen: Seen) -> Measurement:
    """A head that attends to the previous token emerges before the first induction head.

    First step with an induction head, divided by that with a head that shifts by one, on repeated random tokens.
    """
    return _later(
        seen.first(lambda now: now["heads that shift by one"] > 0), seen.first(lambda now: now["heads that induce"] > 0)
    )


def _step(step: int | None) -> Measurement:
    return Measurement(None if step is None else float(step))


def _later(one: int | None, other: int | None) -> Measurement:
    if not one or other is None:
        return Measurement(None)
    return Measurement(other / one, detail=f"steps {one} and {other}")


def _raised(seen: Seen, kind: str) -> Measurement:
    if PAPER_STEP not in seen.steps:
        return Measurement(None)
    place = seen.steps.index(PAPER_STEP)
    before, after = (
        seen.numbers[f"{model}: right"][place] / seen.numbers[f"{model}: the"][place]
        for model in (kind, f"{kind}, cut")
    )
    return Measurement(after / before, detail=f"{before:.3g} to {after:.3g}")


def analyse(observed: tuple[Checkpoint, ...], setting: Setting) -> Analysis:
    """Draw the curves of Figures 2 and 13 and of the heads, and list the faults of the checkpoints."""
    seen = Seen.of(observed)
    models = [one.model for one in observed if one.model]
    return Analysis(
        seen,
        figures(seen.steps, seen.numbers),
        tables([(one.step, one.faults) for one in observed], seen.steps, seen.numbers),
        seeds="0",
        model=f"{models[-1]}, {len(seen.steps)} checkpoints" if models else setting.model,
        untrained=seen.untrained(),
    )


OF_PYTHIA_1B = ("the-before-objects", "object-as-subject", "object-preferred", "objects-ratio")

STUDY = Study(
    name="language/along-training",
    doc=__doc__,
    claims=measures_in(__name__),
    analyse=analyse,
    profiles={
        "paper": Profile(
            Setting("EleutherAI/pythia-1b", steps=PYTHIA_STEPS),
            "The paper's model of Figure 2, Pythia-1B at all 154 checkpoints, with its truncations; 149 facts in place "
            "of one.",
            paper=OF_PYTHIA_1B,
        ),
        "scaled": Profile(
            Setting(steps=PYTHIA_STEPS), "Pythia-160M at all 154 checkpoints, truncated at the depth of Pythia-1B's."
        ),
        "quick": Profile(
            Setting(), "Pythia-160M at 19 of its 154 checkpoints, truncated at the same depth as the paper's Pythia-1B."
        ),
    },
    smoke=Setting(TINY, None, (0, 1, 2, 4), Measuring(6, 8, 2, 16, 4, 2)),
    observe=observe,
)
