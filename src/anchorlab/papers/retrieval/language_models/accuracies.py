"""Figures and tables of language models' answers to retrieval prompts, a bar, line or column for each model."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from anchorlab.findings import BarFigure, Bars, Line, LineFigure, Reference, Table
from anchorlab.language.asking import SCORINGS, Accuracy, Asked, results
from anchorlab.papers.retrieval.language_models.answers import ERRORS, STEPS, Answered, error_of

Answers = Mapping[str, Answered]
"""The answers of each model by its name."""

_RIGHT = "share of right answers"

_ORDERS = {"steps": "premises of each step shuffled", "shuffled": "all premises shuffled", "sorted": "premises sorted"}


def figures(answers: Answers) -> list[BarFigure | LineFigure]:
    """Return both panels of Figure 2, the depths along a chain, and the errors of each model."""
    return [
        _formulations(answers),
        _along(
            {name: seen.steps for name, seen in answers.items()},
            "Equations by number of steps",
            "Figure 2 of the paper, right. Four chains; every question is asked until its answer is acceptable.",
            "number of steps, D",
        ),
        _along(
            {name: seen.depths for name, seen in answers.items()},
            "The same equations, asked about each step of the chain",
            "Every depth has the same premises; the question names the value this number of steps from the answer.",
            "steps from the question to the answer",
        ),
        *(_errors(seen.steps, "" if len(answers) == 1 else f": {name}") for name, seen in answers.items()),
    ]


def tables(answers: Answers) -> list[Table]:
    """Return tables of the answers by formulation, steps, depth, order and chains, and of the candidates' scores."""
    scored = any(seen.scored for seen in answers.values())
    by_likelihood = [_ability_table(answers), _scoring_table(answers)] if scored else []
    return [_formulation_table(answers), *by_likelihood, _comparison_table(answers)]


def _formulations(answers: Answers) -> BarFigure:
    accepted = {name: [seen.of(one).accepted for one in STEPS] for name, seen in answers.items()}
    if len(answers) == 1:
        ((name, seen),) = answers.items()
        bars = [("first acceptable answer", accepted[name]), ("first try", [seen.of(one).first for one in STEPS])]
        which = "By the first acceptable answer, and by the first try."
        if likely := [found for one in STEPS if (found := seen.likely(one)) is not None]:
            bars.append(("likeliest acceptable answer", likely))
            which = "By the first acceptable answer, by the first try, and by the likeliest of the acceptable answers."
    else:
        bars, which = list(accepted.items()), "By the first acceptable answer."
    return BarFigure(
        title="Accuracy by formulation",
        caption=f"Figure 2 of the paper, left. {which}",
        groups=tuple(STEPS),
        bars=tuple(Bars(label, *_means_and_ends(found)) for label, found in bars),
        y_label=_RIGHT,
        dashed=tuple(one.guessing for one in next(iter(accepted.values()))),
        dashed_label="guessing",
        y_range=(0.0, 1.0),
    )


def _along(asked: Mapping[str, Mapping[int, Sequence[Asked]]], title: str, caption: str, x_label: str) -> LineFigure:
    found = {name: {x: results(one).accepted for x, one in own.items()} for name, own in asked.items()}
    one = next(iter(found.values()))
    return LineFigure(
        title=title,
        caption=caption,
        x_label=x_label,
        y_label=_RIGHT,
        lines=tuple(
            Line("first acceptable answer" if len(found) == 1 else name, tuple(own), *_means_and_ends(own.values()))
            for name, own in found.items()
        ),
        y_range=(0.0, 1.0),
        references=(Reference("guessing", next(iter(one.values())).guessing),),
        drawn="band: 95 % interval",
    )


def _means_and_ends(found: Iterable[Accuracy]) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    every = list(found)
    return tuple(one.share for one in every), tuple(one.low for one in every), tuple(one.high for one in every)


def _errors(asked: Mapping[int, Sequence[Asked]], whose: str) -> LineFigure:
    counted = {steps: Counter(map(error_of, own)) for steps, own in asked.items()}
    title = f"What the first answer is, by number of steps{whose}"
    caption = (
        "Right; the end of another chain; a word on the way to the answer, such as the value one step too "
        "early; another word of the premises; or nothing of these."
    )
    lines = tuple(
        Line(error, tuple(counted), tuple(own[error] / own.total() for own in counted.values())) for error in ERRORS
    )
    return LineFigure(title, caption, "number of steps, D", "share of questions", lines, y_range=(0.0, 1.0))


def _by_formulation(
    answers: Answers,
    title: str,
    caption: str,
    columns: Sequence[str],
    values: Callable[[Answered, str], Sequence[str | float] | None],
) -> Table:
    """Return a table with a row for each formulation and model with `values`; models are named if there are several."""
    several = len(answers) > 1
    rows = [
        (name, *([model] if several else []), *found)
        for name in STEPS
        for model, seen in answers.items()
        if (found := values(seen, name)) is not None
    ]
    return Table(title, caption, ("formulation", *(["model"] if several else []), *columns), tuple(rows))


def _formulation_table(answers: Answers) -> Table:
    def values(seen: Answered, name: str) -> list[float]:
        one, errors = seen.of(name), Counter(map(error_of, seen.formulations[name]))
        shares = (one.accepted.share, one.first.share, one.accepted.guessing, one.favourite, one.refused, one.tries)
        return [*shares, *(errors[error] / errors.total() for error in ERRORS[1:])]

    return _by_formulation(
        answers,
        "Answers by formulation",
        "The favourite is the most frequent answer's share: 1 for a model that always says the same. The last "
        "columns are what the first answer is where it is not right, as shares of all questions.",
        ("right", "at first", "guessing", "favourite", "refused", "tries", *ERRORS[1:]),
        values,
    )


def _ability_table(answers: Answers) -> Table:
    """Return the table of what a model says and what it finds likely, which tells a wrong format from ignorance."""

    def values(seen: Answered, name: str) -> Sequence[str | float] | None:
        if (likely := seen.likely(name)) is None:
            return None
        said, own = seen.of(name).accepted, seen.formulations[name]
        acceptable = sum(one.answer is not None for one in own) / len(own)
        reading = "able" if said.beats_guessing else "format" if likely.beats_guessing else "ignorance"
        shares = (said.share, said.low, said.high, acceptable, likely.share, likely.low, likely.high, said.guessing)
        return (*shares, reading)

    return _by_formulation(
        answers,
        "As text and by likelihood",
        "Shares of questions: whose first acceptable answer is right, with an acceptable answer, and whose likeliest "
        "acceptable answer is right, with the ends of 95 % intervals over questions. The reading is “able” where "
        "guessing lies below the interval of the texts, “format” where it lies below the interval by likelihood "
        "alone, else “ignorance”.",
        ("right", "from", "to", "acceptable", "likely", "from", "to", "guessing", "reading"),
        values,
    )


def _scoring_table(answers: Answers) -> Table:
    def values(seen: Answered, name: str) -> list[float] | None:
        if not (right := seen.scored.get(name)):
            return None
        return [*(sum(right[how]) / len(right[how]) for how in SCORINGS), seen.of(name).accepted.guessing]

    return _by_formulation(
        answers,
        "Candidates by likelihood",
        "Share of questions whose right answer is the most likely candidate: by the log-likelihood of its tokens, "
        "by the mean over its tokens, and by either minus its value without the premises.",
        (*SCORINGS, "guessing"),
        values,
    )


def _comparison_table(answers: Answers) -> Table:
    groups = {model: _compared(seen) for model, seen in answers.items()}
    rows: list[tuple[str | float, ...]] = []
    for label in next(iter(groups.values())):
        found = [results(own[label]).accepted for own in groups.values()]
        shares = [value for one in found for value in (one.share, one.low, one.high)]
        rows.append((label, found[0].questions, *shares, found[0].guessing))
    ends = ("right", "from", "to")
    columns = ends if len(answers) == 1 else tuple(f"{model}: {end}" for model in answers for end in ends)
    return Table(
        title="Equations by order, number of chains and distance",
        caption="Short equations. Near and far: the distance from the question to the first value it needs, in words "
        "and signs, is below or above the median over the questions of all orders.",
        columns=("equations", "questions", *columns, "guessing"),
        rows=tuple(rows),
    )


def _compared(seen: Answered) -> dict[str, Sequence[Asked]]:
    """Return groups of equations: by order of premises, by number of chains, and near or far from the question."""
    asked = sorted((one for own in seen.orders.values() for one in own), key=lambda one: one.question.distances[0])
    half = len(asked) // 2
    return {
        **{_ORDERS[order]: own for order, own in seen.orders.items()},
        **{f"{chains} chains": own for chains, own in seen.chains.items()},
        "near the question": asked[:half],
        "far from it": asked[half:],
    }
