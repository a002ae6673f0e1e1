"""Retrieval prompts: language models follow chains of premises in words.

A question names the end of a chain of premises and asks for its beginning: equations, people who live with others,
fictional kingdoms, tables of functions, and relatives. Several chains are interleaved, so that no answer can be guessed
from its kind. The study asks a model each formulation, and equations of growing depth, until an answer is acceptable;
wrong answers are taken apart.

Source: stacked attention heads, section 4, appendix A and Figure 2.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anchorlab.findings import BarFigure, Bars, Line, LineFigure, Reference, Table, at_least
from anchorlab.language.asking import SCORINGS, Asked, Manner, Results, results
from anchorlab.studies.claim import Measurement, claim, measures_in
from anchorlab.studies.language.speaking import described_speaker, open_speaker, untrained_speaker
from anchorlab.studies.retrieval.prompt_answers import ERRORS, SMOKE, STEPS, Answered, PromptSetting, answer, error_of
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.studies.workplace import Workplace

EASY = 5  # the equations that the paper finds solved almost perfectly have up to this many steps
_CONTROLS = 4  # an untrained model is asked this many times fewer questions


@dataclass(frozen=True)
class Observed:
    """The answers of a model and of the same architecture with random weights; None of these for one at a server."""

    trained: Answered
    untrained: Answered | None
    model: str


def observe(setting: PromptSetting, workplace: Workplace) -> Observed:
    """Ask the model of the setting and, if it is on this machine, an untrained one."""
    speaker = open_speaker(setting, workplace)
    trained, model = answer(speaker, setting, workplace.report, "asking"), described_speaker(setting, speaker)
    untrained = untrained_speaker(speaker)
    if untrained is None:
        return Observed(trained, None, model)
    fewer = replace(
        setting,
        questions=-(-setting.questions // _CONTROLS),
        deep=-(-setting.deep // _CONTROLS),
        steps=tuple(step for step in setting.steps if step <= EASY),
    )
    return Observed(trained, answer(untrained, fewer, workplace.report, "asking an untrained model"), model)


@claim(
    "Equations of up to five steps are solved almost perfectly",
    at="stacked attention heads, section 4 and Fig 2",
    paper="almost perfectly",
    band=at_least(0.9),
)
def short_equations(seen: Answered) -> Measurement:
    """Share of equations of 1 to {EASY} steps whose first acceptable answer is right."""
    asked = [one for steps, own in seen.steps.items() if steps <= EASY for one in own]
    return _share(results(asked))


@claim(
    "Lives-with questions of five steps are answered well",
    at="stacked attention heads, section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def lives_with(seen: Answered) -> Measurement:
    """Share of questions about who lives with whom whose first acceptable answer is right."""
    return _share(seen.of("lives-with"))


@claim(
    "Kingdoms questions of five steps are answered well",
    at="stacked attention heads, section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def kingdoms(seen: Answered) -> Measurement:
    """Share of questions about fictional kingdoms whose first acceptable answer is right."""
    return _share(seen.of("kingdoms"))


@claim(
    "So is conditional retrieval with functions",
    at="stacked attention heads, section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def functions(seen: Answered) -> Measurement:
    """Share of questions about values of functions whose first acceptable answer is right."""
    return _share(seen.of("functions"))


@claim(
    "And with relatives",
    at="stacked attention heads, section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def relatives(seen: Answered) -> Measurement:
    """Share of questions about homes of relatives whose first acceptable answer is right."""
    return _share(seen.of("relatives"))


@claim(
    "Every formulation is answered better than by guessing",
    at="stacked attention heads, section 4 and Fig 2",
    paper="able to solve such tasks without fine-tuning",
    band=at_least(1),
)
def better_than_guessing(seen: Answered) -> Measurement:
    """Share of the five formulations in which guessing lies below the 95 % interval of the accuracy."""
    better = [name for name in STEPS if seen.of(name).accepted.beats_guessing]
    return Measurement(len(better) / len(STEPS), detail=", ".join(better) or "none")


def _share(found: Results) -> Measurement:
    one = found.accepted
    detail = f"95 % interval {one.low:.2f} to {one.high:.2f} of {one.questions} questions, guessing {one.guessing:.3g}"
    return Measurement(one.share, detail=detail)


def analyse(observed: Observed, setting: PromptSetting) -> Analysis:
    """Draw Figure 2, and what goes wrong."""
    seen = observed.trained
    return Analysis(
        seen,
        figures=[
            _formulations(seen),
            _along(
                seen.steps,
                "Equations by number of steps",
                "Figure 2 of the paper, right. Four chains; every question is asked until its answer is acceptable.",
                "number of steps, D",
            ),
            _errors(seen.steps),
            _along(
                seen.depths,
                "The same equations, asked about each step of the chain",
                "All questions have the same premises; the question names the value so many steps from the answer.",
                "steps from the question to the answer",
            ),
        ],
        tables=[_formulation_table(seen), *([_scoring_table(seen)] if seen.scored else []), _comparison_table(seen)],
        seeds="0",
        model=observed.model,
        untrained=observed.untrained,
    )


def _formulations(seen: Answered) -> BarFigure:
    found = [seen.of(name) for name in STEPS]
    return BarFigure(
        title="Accuracy by formulation",
        caption="Figure 2 of the paper, left. The first acceptable answer counts, and the first try.",
        groups=tuple(STEPS),
        bars=(
            Bars(
                "first acceptable answer",
                tuple(one.accepted.share for one in found),
                tuple(one.accepted.low for one in found),
                tuple(one.accepted.high for one in found),
            ),
            Bars(
                "first try",
                tuple(one.first.share for one in found),
                tuple(one.first.low for one in found),
                tuple(one.first.high for one in found),
            ),
        ),
        y_label="share of right answers",
        dashed=tuple(one.accepted.guessing for one in found),
        dashed_label="guessing",
        y_range=(0.0, 1.0),
    )


def _along(asked: Mapping[int, Sequence[Asked]], title: str, caption: str, x_label: str) -> LineFigure:
    found = {steps: results(own).accepted for steps, own in asked.items()}
    across = tuple(float(steps) for steps in found)
    line = Line(
        "first acceptable answer",
        across,
        tuple(one.share for one in found.values()),
        tuple(one.low for one in found.values()),
        tuple(one.high for one in found.values()),
    )
    guessing = next(iter(found.values())).guessing
    return LineFigure(
        title=title,
        caption=caption,
        x_label=x_label,
        y_label="share of right answers",
        lines=(line,),
        y_range=(0.0, 1.0),
        references=(Reference("guessing", guessing),),
        drawn="band: 95 % interval",
    )


def _errors(asked: Mapping[int, Sequence[Asked]]) -> LineFigure:
    counted = {steps: Counter(map(error_of, own)) for steps, own in asked.items()}
    across = tuple(map(float, counted))
    return LineFigure(
        title="What the first answer is, by number of steps",
        caption=(
            "Right; the end of another chain; a word on the way to the answer, such as the value one step too early; "
            "another word of the premises; or nothing of these."
        ),
        x_label="number of steps, D",
        y_label="share of questions",
        lines=tuple(
            Line(error, across, tuple(own[error] / own.total() for own in counted.values())) for error in ERRORS
        ),
        y_range=(0.0, 1.0),
    )


def _formulation_table(seen: Answered) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for name in STEPS:
        one, errors = seen.of(name), Counter(map(error_of, seen.formulations[name]))
        rows.append(
            (
                name,
                one.accepted.share,
                one.first.share,
                one.accepted.guessing,
                one.favourite,
                one.refused,
                one.tries,
                *(errors[error] / errors.total() for error in ERRORS[1:]),
            )
        )
    return Table(
        title="Answers by formulation",
        caption=(
            "The favourite is the most frequent answer's share: 1 for a model that always says the same. The last "
            "columns are what the first answer is where it is not right, as shares of all questions."
        ),
        columns=("formulation", "right", "at first", "guessing", "favourite", "refused", "tries", *ERRORS[1:]),
        rows=tuple(rows),
    )


def _scoring_table(seen: Answered) -> Table:
    return Table(
        title="Candidates by likelihood",
        caption=(
            "Share of questions whose right answer is the most likely candidate: by the log-likelihood of its tokens, "
            "by its mean, and by either less that without the premises."
        ),
        columns=("formulation", *SCORINGS, "guessing"),
        rows=tuple(
            (name, *(seen.scored[name][how] for how in SCORINGS), seen.of(name).accepted.guessing) for name in STEPS
        ),
    )


def _comparison_table(seen: Answered) -> Table:
    groups: list[tuple[str, Sequence[Asked]]] = [
        *((f"premises {order}", own) for order, own in seen.orders.items()),
        *((f"{chains} chains", own) for chains, own in seen.chains.items()),
        *_by_distance(seen),
    ]
    rows = []
    for label, own in groups:
        one = results(own).accepted
        rows.append((label, one.questions, one.share, one.low, one.high, one.guessing))
    return Table(
        title="Equations by order, number of chains and distance",
        caption=(
            "Short equations; the distance is that from the question to the first value it needs, in words and signs, "
            "below or above the median of all questions of the orders."
        ),
        columns=("equations", "questions", "right", "from", "to", "guessing"),
        rows=tuple(rows),
    )


def _by_distance(seen: Answered) -> list[tuple[str, Sequence[Asked]]]:
    asked = sorted((one for own in seen.orders.values() for one in own), key=lambda one: one.question.distances[0])
    half = len(asked) // 2
    return [("near the question", asked[:half]), ("far from it", asked[half:])]


STUDY = Study(
    "retrieval/language-models",
    __doc__,
    measures_in(__name__),
    analyse,
    {
        "quick": Profile(
            PromptSetting(),
            "SmolLM2-135M-Instruct in place of the paper's large models; 20 questions of each kind; through its chat "
            "template, with the answer begun; the likeliest text, then samples, at most three tries.",
        ),
        "paper": Profile(
            PromptSetting(questions=500, deep=500, tries=20, manner=Manner()),
            "500 questions of each kind, as the paper; which models it asked, Figure 2 alone shows.",
        ),
    },
    SMOKE,
    observe=observe,
)
