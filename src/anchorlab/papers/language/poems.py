"""Language models: the next line of a poem is easier to recite than the line before.

A model is shown a line of a poem, with the poem's title and author, and asked for the next line or for the line before.
Its text counts if it begins with the right line; in addition every other line of the poem is scored by its likelihood,
so that a model that recites nothing may still tell the right line.

Source: anchor functions, section 4.7, which asks GPT-4 for lines of 20 poems.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.engine import Status
from anchorlab.findings import BarFigure, Bars, Table, at_least, at_most
from anchorlab.language.asking import Manner, Scoring, Speaker
from anchorlab.language.sample_text import Poem, poems
from anchorlab.papers.pretrained import opening
from anchorlab.papers.retrieval.language_models.answers import manner_for, put, report_answers
from anchorlab.studies import Measurement, Observed, Profile, Study, claim, measures_in, over, precondition
from anchorlab.studies.kit import column_table
from anchorlab.studies.observation_context import ObservationContext
from anchorlab.tasks import Question

DIRECTIONS = {"forward": 1, "backward": -1}
"""How many lines after the given line the answer is, by direction."""

SCORED: Scoring = "sum over prior"
"""How lines are compared: a line that the model finds likely after any line has no advantage."""

KNOWN = 0.5  # a poem is known if this share of its next lines is recited, and the poems if this share of them is known
_ASKED = {"forward": ("comes right after", "The next line is:"), "backward": ("comes right before", "That line is:")}
_AROUND = " ,.;:!?\"'"  # characters around a line that an answer need not repeat


@dataclass(frozen=True)
class Setting(opening.ModelSetting):
    """The number of poems, and how lines are asked for."""

    poems: int = 20
    manner: Manner = field(default_factory=lambda: Manner(begun=True, tokens=24))


@dataclass(frozen=True)
class Recited:
    """Which lines of each poem the model gets right, by direction."""

    said: Mapping[str, Bool[Tensor, "poem line"]]  # whether the text begins with the right line
    told: Mapping[str, Bool[Tensor, "poem line"]]  # whether the right line scores best; empty for a model on a server
    guessing: float  # the share that guessing among the poem's other lines gets right


def question(poem: Poem, place: int, direction: str) -> Question:
    """Return the question for the line after or before the line at a place; the poem's other lines are candidates."""
    way, begun = _ASKED[direction]
    bare = [line.strip(_AROUND) for line in poem.lines]
    right = bare[place + DIRECTIONS[direction]]
    return Question(
        text=f'A line of the poem "{poem.title}" by {poem.author}:\n{poem.lines[place]}\nWhich line {way} it?',
        instruction="Answer with that line only.",
        begun=begun,
        answer=right,
        candidates=tuple(bare[:place] + bare[place + 1 :]),
        depth=1,
        path=(bare[place], right),
        hops=(direction,),
        distances=(1,),
        order=(0,),
    )


def recite(speaker: Speaker, setting: Setting, report: Callable[[Status], None], what: str = "asking") -> Recited:
    """Ask for the lines after and before every line but the first and last of each poem."""
    chosen = poems()[: setting.poems]
    places = range(1, len(chosen[0].lines) - 1)
    asked = {name: [question(poem, at, name) for poem in chosen for at in places] for name in DIRECTIONS}
    manner, total, said, told = manner_for(speaker, setting.manner), sum(map(len, asked.values())), {}, {}
    for part, (name, questions) in enumerate(asked.items()):
        progress = partial(report_answers, report, Status(total, part * len(questions), what))
        answers = put(speaker, questions, manner, (), 1, scored=True, told=progress)
        said[name] = torch.tensor([one.asked.right for one in answers]).reshape(len(chosen), -1)
        if answers[0].likely:
            told[name] = torch.tensor([one.likely[SCORED] for one in answers]).reshape(len(chosen), -1)
    return Recited(said, told, asked["forward"][0].chance)


def observe(setting: Setting, context: ObservationContext) -> Observed[Recited]:
    """Ask the model, and an untrained one if it is on this machine."""
    speaker = opening.open_speaker(setting, context)
    recited, untrained = recite(speaker, setting, context.report), opening.untrained_speaker(speaker)
    control = None if untrained is None else recite(untrained, setting, context.report, "asking an untrained model")
    return Observed(recited, control, opening.described_speaker(setting, speaker))


def _shares(right: Bool[Tensor, "poem line"]) -> Float[Tensor, "poem"]:
    return right.double().mean(dim=1)


@claim("anchor functions, section 4.7", "95 % (GPT-4)", at_least(0.9))
def forward_recited(seen: Recited) -> Measurement:
    """The next line of a poem is recited.

    Share of lines after which the model's text begins with the next line, mean over poems.
    """
    return over(_shares(seen.said["forward"]), "poems")


@precondition(
    "anchor functions, section 4.7",
    "95 % of the next lines (GPT-4)",
    at_least(KNOWN),
    of=("backward-not-recited", "forward-easier"),
)
def poems_known(seen: Recited) -> Measurement:
    """The model knows the poems.

    Share of poems of which the model recites at least half of the next lines.
    """
    return over(_shares(seen.said["forward"]) >= KNOWN, "poems")


@claim("anchor functions, section 4.7", "5 % (GPT-4)", at_most(0.1))
def backward_not_recited(seen: Recited) -> Measurement:
    """The line before is not recited.

    Share of lines before which the model's text begins with the line before, mean over poems.
    """
    return over(_shares(seen.said["backward"]), "poems")


@claim("anchor functions, section 4.7", "much easier; 0.9 apart (GPT-4)", at_least(0.1))
def forward_easier(seen: Recited) -> Measurement:
    """The next line is easier to tell than the line before.

    Share of lines whose next line is the best by likelihood among the other lines of the poem, minus the share for the
    line before, mean over poems; for a model on a server, the shares recited.
    """
    of = seen.told or seen.said
    return over(
        _shares(of["forward"]) - _shares(of["backward"]),
        "poems",
        detail=", ".join(f"{name} {float(of[name].double().mean()):.3g}" for name in DIRECTIONS)
        + (f", guessing {seen.guessing:.3g}" if seen.told else ""),
    )


def _bars(observed: Observed[Recited]) -> BarFigure:
    seen = observed.seen

    def bars(label: str, right: Mapping[str, Bool[Tensor, "poem line"]]) -> Bars:
        found = [over(_shares(right[name]), "poems") for name in DIRECTIONS]
        ends = [one.interval or (one.value or 0.0,) * 2 for one in found]
        return Bars(label, tuple(one.value or 0.0 for one in found), *map(tuple, zip(*ends, strict=True)))

    return BarFigure(
        title="Lines recited, and lines told from the other lines of the poem",
        caption="Mean over poems. Recited: the text begins with the right line. Told: the right line has the highest "
        "likelihood, relative to its likelihood when no line is shown. In the paper GPT-4 recites 0.95 forward and "
        "0.05 backward.",
        groups=("next line", "line before"),
        bars=(bars("recited", seen.said), *([bars("told", seen.told)] if seen.told else [])),
        y_label="share of lines",
        dashed=(seen.guessing,) * 2 if seen.told else (),
        dashed_label="guessing" if seen.told else "",
        y_range=(0.0, 1.0),
    )


def _table(observed: Observed[Recited]) -> Table:
    seen = observed.seen
    chosen = poems()[: len(seen.said["forward"])]
    return column_table(
        "By poem",
        "Shares of the six lines that have a next line and a line before.",
        {
            "poem": [f"{one.author}: {one.title} ({one.year})" for one in chosen],
            **{f"{name}, recited": _shares(right) for name, right in seen.said.items()},
            **{f"{name}, told": _shares(right) for name, right in seen.told.items()},
        },
    )


STUDY = Study(
    "language/poems",
    __doc__,
    measures_in(__name__),
    draws=[_bars, _table],
    profiles={
        "quick": Profile(
            Setting(),
            "A small model whose weights come quantised to 4 bits (SmolLM2-135M-Instruct, Q4_1; also Gemma 3 "
            "270M, Q4_K_M) in place of the paper's GPT-4; 20 poems and the wording are our own choice, as the paper "
            "lists neither.",
        ),
        "paper": Profile(
            Setting("https://api.openai.com/v1#gpt-4", manner=Manner(tokens=40)),
            "GPT-4, which the paper asks, on the poems and in the words of the quick profile, with no answer begun; "
            "recited lines alone are judged, since the server gives no likelihoods of lines.",
        ),
    },
    smoke=Setting(opening.TINY, poems=2, manner=Manner(chat=False, tokens=3)),
    observe=observe,
)
