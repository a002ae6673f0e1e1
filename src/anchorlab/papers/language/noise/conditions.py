"""How a fact is asked: with and without the token at a text's beginning, and in the model's chat template."""

from collections.abc import Mapping
from dataclasses import replace

from anchorlab.findings import Table
from anchorlab.language import LanguageModel
from anchorlab.language.answers import Questions
from anchorlab.language.asking.chat import chat_text
from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.prompts import Prompt, evenly
from anchorlab.models import Truncate
from anchorlab.papers.language.laser import (
    Laser,
    ask_both,
    first_gain,
    kinds_over_right,
    right_over_the,
    right_with_and_without,
    the_with_and_without,
)
from anchorlab.studies.claim import Measurement

BEGUN = "token at the beginning"
BARE = "nothing before the sentence"
CHAT = "chat template"
_ASKED = "Complete the sentence."


def in_conditions(model: LanguageModel, asked: Laser, truncation: Truncate, count: int) -> dict[str, Laser]:
    """Ask `count` of the prompts without the token at the beginning, and in the chat template if the model has one."""
    prompts = evenly(asked.prompts, count)
    chosen = set(prompts)
    found = {BEGUN: asked.where([prompt in chosen for prompt in asked.prompts])}
    found[BARE] = ask_both(Questions(model, prompts, begun=False), truncation)
    tokenizer = model.tokenizer
    if tokenizer is not None and tokenizer.chat_template:

        def template(prompt: Prompt) -> Prompt:
            request = Request((Turn("user", _ASKED),), begun=prompt.text)
            return replace(prompt, text=chat_text(tokenizer, request, model.name))

        found[CHAT] = ask_both(Questions(model, list(map(template, prompts)), begun=False), truncation)
    return found


def condition_table(lasers: Mapping[str, Laser]) -> Table:
    """Return the values of the main claims on facts in each condition, with their 95 % intervals."""
    measures = (right_over_the, the_with_and_without, right_with_and_without, first_gain, kinds_over_right)
    return Table(
        title="The claims on facts by how the fact is asked",
        caption=(
            "Facts of the second half, all under the truncation that was chosen with the token at the beginning; "
            f'values with 95 % intervals. In the chat template the user writes "{_ASKED}" and the sentence begins the '
            "answer; a model without a template has no such row."
        ),
        columns=(
            "condition", 'right / "the", full', '"the", cut / full', "right, cut / full",
            "first of its kind, cut - full", "rise of the wrong words over the right one's",
        ),
        rows=tuple((name, *(_text(measure(laser)) for measure in measures)) for name, laser in lasers.items()),
    )  # fmt: skip


def _text(found: Measurement) -> str:
    if found.value is None:
        return "not measured"
    interval = "" if found.interval is None else f" ({found.interval[0]:.3g} to {found.interval[1]:.3g})"
    return f"{found.value:.3g}{interval}"
