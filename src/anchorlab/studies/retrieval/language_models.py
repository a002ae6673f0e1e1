"""Retrieval prompts: language models follow chains of premises in words.

A question names the end of a chain of premises and asks for its beginning: equations, people who live with others,
fictional kingdoms, tables of functions, and relatives. Several chains are interleaved, so that no answer can be guessed
from its kind. The study asks a model each formulation, and equations of growing depth, until an answer is acceptable;
wrong answers are taken apart.

Source: stacked attention heads, section 4, appendix A and Figure 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from anchorlab.findings import at_least
from anchorlab.language.asking import Asked, Manner, results
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.language.speaking import described_speaker, open_speaker, untrained_speaker
from anchorlab.studies.retrieval.prompt_answers import SMOKE, STEPS, Answered, PromptSetting, answer
from anchorlab.studies.retrieval.prompt_figures import figures, tables
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.studies.workplace import Workplace

EASY = 5  # the equations that the paper finds solved almost perfectly have up to this many steps
_CONTROLS = 4  # an untrained model is asked this many times fewer questions


@dataclass(frozen=True)
class Observed:
    """What models answered.

    Fields
        answers: of each model by its name; claims are about the first
        untrained: of the first model's architecture with random weights; None for a model at a server
        models: the models in words
    """

    answers: dict[str, Answered]
    untrained: Answered | None
    models: str

    @property
    def judged(self) -> Answered:
        """The answers that claims are about."""
        return next(iter(self.answers.values()))


def observe(setting: PromptSetting, workplace: Workplace) -> Observed:
    """Ask the models of the setting and, if the first is on this machine, an untrained one like it."""
    answers, words, untrained = dict[str, Answered](), list[str](), None
    for name in setting.models:
        one = replace(setting, model=name)
        speaker = open_speaker(one, workplace)
        label = name if speaker.name in answers else speaker.name
        answers[label] = answer(speaker, setting, workplace.report, f"asking {label}")
        if not words and (control := untrained_speaker(speaker)) is not None:
            untrained = answer(control, _fewer(setting), workplace.report, "asking an untrained model")
        words.append(described_speaker(one, speaker))
    return Observed(answers, untrained, "; ".join(words))


def _fewer(setting: PromptSetting) -> PromptSetting:
    """Return what an untrained model is asked: a quarter of the questions, once, for it says nothing acceptable."""
    return replace(
        setting,
        questions=-(-setting.questions // _CONTROLS),
        deep=-(-setting.deep // _CONTROLS),
        steps=tuple(step for step in setting.steps if step <= EASY),
        tries=1,
    )


@claim(
    "Equations of up to five steps are solved almost perfectly",
    at="section 4 and Fig 2",
    paper="almost perfectly",
    band=at_least(0.9),
)
def short_equations(seen: Answered) -> Measurement:
    """Share of equations of 1 to {EASY} steps whose first acceptable answer is right."""
    asked = [one for steps, own in seen.steps.items() if steps <= EASY for one in own]
    return _share(asked)


@claim(
    "Lives-with questions of five steps are answered well",
    at="section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def lives_with(seen: Answered) -> Measurement:
    """Share of questions about who lives with whom whose first acceptable answer is right."""
    return _share(seen.formulations["lives-with"])


@claim(
    "Kingdoms questions of five steps are answered well",
    at="section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def kingdoms(seen: Answered) -> Measurement:
    """Share of questions about fictional kingdoms whose first acceptable answer is right."""
    return _share(seen.formulations["kingdoms"])


@claim(
    "Conditional retrieval with functions is answered well",
    at="section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def functions(seen: Answered) -> Measurement:
    """Share of questions about values of functions whose first acceptable answer is right."""
    return _share(seen.formulations["functions"])


@claim(
    "Conditional retrieval with relatives is answered well",
    at="section 4 and Fig 2",
    paper="great performance",
    band=at_least(0.75),
)
def relatives(seen: Answered) -> Measurement:
    """Share of questions about homes of relatives whose first acceptable answer is right."""
    return _share(seen.formulations["relatives"])


@claim(
    "Every formulation is answered better than by guessing",
    at="section 4 and Fig 2",
    paper="able to solve such tasks without fine-tuning",
    band=at_least(1),
)
def better_than_guessing(seen: Answered) -> Measurement:
    """Share of the five formulations in which guessing lies below the 95 % interval of the accuracy."""
    better = [name for name in STEPS if seen.of(name).accepted.beats_guessing]
    return Measurement(len(better) / len(STEPS), detail=", ".join(better) or "none")


def _share(asked: Sequence[Asked]) -> Measurement:
    right = torch.tensor([one.right for one in asked])
    return over(right, "questions", detail=f"guessing {results(asked).accepted.guessing:.3g}")


def analyse(observed: Observed, setting: PromptSetting) -> Analysis:
    """Draw Figure 2, and what goes wrong."""
    return Analysis(
        observed.judged,
        figures=figures(observed.answers),
        tables=tables(observed.answers),
        seeds="0",
        model=observed.models,
        untrained=observed.untrained,
    )


STUDY = Study(
    "retrieval/language-models",
    __doc__,
    measures_in(__name__),
    analyse,
    {
        "quick": Profile(
            PromptSetting(),
            "SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1), in place of the paper's large models; 20 questions of "
            "each kind; through its chat template, with the answer begun; the likeliest text, then samples, at most "
            "three tries.",
        ),
        "quick-unbegun": Profile(
            PromptSetting(manner=Manner()),
            "As quick, but no answer is begun, for services that cannot go on with one.",
        ),
        "paper": Profile(
            PromptSetting(questions=500, deep=500, tries=20, manner=Manner()),
            "500 questions of each kind, as the paper; which models it asked, Figure 2 alone shows.",
        ),
    },
    SMOKE,
    observe=observe,
)
