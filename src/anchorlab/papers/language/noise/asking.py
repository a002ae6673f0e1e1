"""The questions of `language/noise`: its setting, the answers, and the choice of truncations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from anchorlab.engine import Status
from anchorlab.language import LanguageModel
from anchorlab.language.answers import Answers, Questions, combine
from anchorlab.language.asking.chat import chat_text
from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.next_words import edited_weights
from anchorlab.language.prompts import (
    Prompt,
    evenly,
    facts,
    indirect_objects,
    paper_sentences,
    prepositions,
    sentences,
    split_by_unit,
    with_country,
)
from anchorlab.language.truncations import TruncationSearch, search_truncations
from anchorlab.models import Truncate
from anchorlab.papers.language.laser import SIX, Laser, ask_both, input_matrices
from anchorlab.papers.language.noise.comparisons import CHAT_REQUEST, MADRID, SENTENCE
from anchorlab.papers.language.precision import BITS, Bits, requantised
from anchorlab.papers.pretrained.opening import ModelSetting, described, open_model, untrained_model
from anchorlab.studies import ObservationContext, Observed

BEGUN = "token at the beginning"
BARE = "nothing before the sentence"
CHAT = "chat template"
"""How a fact is asked: with and without the token at a text's beginning, and in the model's chat template."""

_DRAWN = 4  # the last layers of Figure 1


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The numbers of prompts, and the truncations to try."""

    objects: int = 100  # the number of sentences about indirect objects
    facts: int = 149  # the number of cities whose country is asked for by the paper's prompt, evenly spaced
    mix: int = 1254  # the number of prompts about facts of six relations, evenly spaced among two for each fact
    ending: int = 40  # the number of prepositions, and of sentences of either kind that end in one, evenly spaced
    swept: int = 15  # the number of sentences, apart from Figure 1's, that are asked under its truncations
    deep: float = 1 / 3  # the share of layers, counted from the last, whose input matrices are tried
    fractions: tuple[float, ...] = (0.0, 0.01, 0.05, 0.2)  # the fractions of the rank to try
    # the fractions of the rank in Figure 1
    grid: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Seen:
    """The answers of one model."""

    # the full model's answers to all prompts of the set
    objects: Answers
    facts: Answers
    units: tuple[str, ...]  # the country that each fact is about
    # the second half, with the truncation chosen on the first
    objects_cut: Laser
    facts_cut: Laser
    # with the truncation chosen for facts; the sentences are the paper's
    prepositions: Laser
    sentences: Laser
    own_sentences: Laser  # the same for 40 sentences that are not the paper's
    country_of: Laser  # the second half of the facts, ending in "located in the country of"
    swept: TruncationSearch  # Figure 1's sentence and others under truncations of the last layers
    # the likeliest words after Table 1's sentence, with their probabilities without and with the truncation
    words: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class ObservedNoise(Observed[Seen]):
    """Answers of a pretrained model, of quantised copies, and of the same architecture with random weights."""

    coarser: Mapping[Bits, Seen]
    # of the model: the second half of the facts asked in each way, by name, and facts of six relations
    conditions: Mapping[str, Laser]
    mix: Laser


def observe(setting: Setting, context: ObservationContext) -> ObservedNoise:
    """Ask the setting's model, its quantised copies and an untrained model."""
    model = open_model(setting, context)
    steps = 3 + len(BITS)
    context.report(Status(steps, 0, "searching truncations"))
    chosen = [choose(model, prompts, setting) for prompts in _sets(setting)]
    context.report(Status(steps, 1, "asking"))
    trained = see(model, chosen, setting)
    coarser = {}
    for place, bits in enumerate(BITS):
        context.report(Status(steps, 2 + place, f"asking with weights of {bits} bits"))
        coarser[bits] = see(requantised(model, bits), chosen, setting)
    context.report(Status(steps, steps - 1, "asking an untrained model"))
    return ObservedNoise(
        seen=trained,
        untrained=see(untrained_model(model), chosen, setting),
        model=described(setting, model),
        seeds="0",
        coarser=coarser,
        conditions=in_conditions(model, trained.facts_cut, chosen[1]),
        mix=ask_mix(model, chosen[1], setting),
    )


def in_conditions(model: LanguageModel, asked: Laser, truncation: Truncate) -> dict[str, Laser]:
    """Ask prompts again without the beginning-of-text token and, if the model has one, in the chat template."""
    prompts = asked.prompts
    found = {BEGUN: asked, BARE: ask_both(Questions(model, prompts, begun=False), truncation)}
    tokenizer = model.tokenizer
    if tokenizer is not None and tokenizer.chat_template:

        def template(prompt: Prompt) -> Prompt:
            request = Request((Turn("user", CHAT_REQUEST),), begun=prompt.text)
            return replace(prompt, text=chat_text(tokenizer, request, model.name))

        found[CHAT] = ask_both(Questions(model, list(map(template, prompts)), begun=False), truncation)
    return found


def ask_mix(model: LanguageModel, truncation: Truncate, setting: Setting) -> Laser:
    """Ask facts of six relations, except facts about the countries that the truncation was chosen on."""
    chosen_on = {one.unit for one in split_by_unit(_sets(setting)[1])[0]}
    told = evenly(facts(SIX, (0, 1)), setting.mix)
    return ask_both(Questions(model, [one for one in told if one.unit not in chosen_on]), truncation)


@cache
def _sets(setting: Setting) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    return indirect_objects(setting.objects), evenly(facts(), setting.facts)


def choose(model: LanguageModel, prompts: Sequence[Prompt], setting: Setting) -> Truncate:
    """Return the truncation of a deep input matrix with the lowest loss on the first half of the prompts."""
    layers = len(model.blocks)
    tried = input_matrices(model, range(layers - max(1, round(setting.deep * layers)), layers))
    return search_truncations(Questions(model, split_by_unit(prompts)[0]), tried, setting.fractions).best()


def see(model: LanguageModel, chosen: Sequence[Truncate], setting: Setting) -> Seen:
    """Ask all prompts, with the truncations chosen for indirect objects and for facts."""
    (objects, objects_cut), (told, facts_cut) = (
        _halves(model, prompts, truncation) for prompts, truncation in zip(_sets(setting), chosen, strict=True)
    )
    _, of_facts = chosen

    def ending(prompts: Sequence[Prompt]) -> Laser:
        return ask_both(Questions(model, evenly(prompts, setting.ending)), of_facts)

    last = range(max(0, len(model.blocks) - _DRAWN), len(model.blocks))
    asked = Questions(model, [SENTENCE, *evenly(objects_cut.prompts, setting.swept)])
    return Seen(
        objects=objects,
        facts=told,
        units=tuple(one.unit for half in split_by_unit(_sets(setting)[1]) for one in half),
        objects_cut=objects_cut,
        facts_cut=facts_cut,
        prepositions=ending(prepositions()),
        sentences=ending(paper_sentences()),
        own_sentences=ending(sentences()),
        country_of=ask_both(Questions(model, with_country(facts_cut.prompts)), of_facts),
        swept=search_truncations(asked, [f"blocks.{layer}.mlp.W_in" for layer in last], setting.grid),
        words=_likeliest(model, of_facts),
    )


def _halves(model: LanguageModel, prompts: Sequence[Prompt], truncation: Truncate) -> tuple[Answers, Laser]:
    """Return the full model's answers to all prompts, and both models' answers to the second half."""
    first, second = (Questions(model, half) for half in split_by_unit(prompts))
    laser = ask_both(second, truncation)
    return combine([first.answers(), laser.full], torch.cat), laser


def _likeliest(model: LanguageModel, truncation: Truncate) -> tuple[tuple[str, float, float], ...]:
    """Return the full model's five likeliest tokens after Table 1's sentence and the right one, with probabilities."""
    asked = Questions(model, [MADRID])
    before, after = (asked.log_probabilities(edited_weights(model, edits))[0].exp() for edits in ([], [truncation]))
    shown = dict.fromkeys([*before.topk(5).indices.tolist(), int(asked.tokens.answers)])
    words = model.words(torch.tensor(list(shown)))
    return tuple((word, float(before[token]), float(after[token])) for word, token in zip(words, shown, strict=True))
