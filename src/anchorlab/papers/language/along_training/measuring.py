"""Measurements at one checkpoint of a language model: words after prompts, some under a truncation, and heads."""

from dataclasses import dataclass

import torch

from anchorlab.language import LanguageModel
from anchorlab.language.answers import Questions
from anchorlab.language.encode import windows
from anchorlab.language.losses import text_losses
from anchorlab.language.prompts import facts, indirect_objects, prepositions, sentences
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.sample_text import english_page
from anchorlab.language.start import start_token
from anchorlab.models import Truncate
from anchorlab.papers.language.heads.scores import score_heads
from anchorlab.papers.language.laser import ask_both, mean


@dataclass(frozen=True)
class Measuring:
    """How much is measured at each checkpoint, and under which truncations."""

    # the number of sentences about indirect objects, and of facts
    objects: int = 100
    facts: int = 149
    # the number of pieces of English, and of tokens in each
    texts: int = 8
    length: int = 64
    # the number of random tokens before they are repeated, and of such sequences
    half: int = 32
    sequences: int = 8
    # the depth of the layer whose W_in is cut, 1 for the last layer, and the fraction of its rank that is kept
    objects_cut: tuple[float, float] = (11 / 16, 0.008)
    facts_cut: tuple[float, float] = (16 / 16, 0.0125)


def measure(model: LanguageModel, setting: Measuring) -> dict[str, float]:
    """Return the numbers of one checkpoint by name. As in the paper, no token precedes a prompt."""
    ranks = {
        f"rank after {name}": float(Questions(model, prompts, begun=False).answers().word_ranks[:, 0].mean())
        for name, prompts in (("prepositions", prepositions()), ("sentences", sentences()))
    }
    return {**_words(model, setting), **ranks, **_heads(model, setting)}


def _words(model: LanguageModel, setting: Measuring) -> dict[str, float]:
    found: dict[str, float] = {}
    kinds = {
        "objects": (indirect_objects(setting.objects), setting.objects_cut),
        "facts": (facts()[: setting.facts], setting.facts_cut),
    }
    for kind, (prompts, (depth, fraction)) in kinds.items():
        layer = max(round(depth * len(model.blocks)), 1) - 1
        cut = Truncate(weight=f"blocks.{layer}.mlp.W_in", fraction=fraction)
        laser = ask_both(Questions(model, prompts, begun=False), cut)
        for name, answers in ((kind, laser.full), (f"{kind}, cut", laser.cut)):
            found |= {f"{name}: right": mean(answers.right), f"{name}: the": mean(answers.words[:, 0])}
        found |= {f"{kind}: median rank": float(laser.full.right_rank.nanmedian())}
        if kind == "objects":
            # NaN if a subject begins with the same token as the object
            found |= {"objects: subject": float(laser.full.others.exp().nanmean())}
    return found


def _heads(model: LanguageModel, setting: Measuring) -> dict[str, float]:
    """Return the loss on English, and counts and largest scores of heads on repeated random tokens."""
    tokenizer = model.tokenizer
    pieces = windows(tokenizer, english_page().text, setting.length, model.context)[: setting.texts]
    assert tokenizer is not None  # windows refuses a model without one
    excluded, start = tokenizer.all_special_ids, start_token(tokenizer)
    drawn = repeated_tokens(len(tokenizer), setting.sequences, setting.half, 0, excluded, start)
    scored = score_heads(model, drawn)
    by_one = scored.fires("shift") & (scored.distance == 1)
    previous = torch.where(scored.distance == 1, scored.scores["shift"], 0)
    return {
        "loss on English": float(text_losses(model, pieces).mean()),
        "heads that shift by one": float(by_one.sum()),
        "heads that induce": float(scored.fires("induction").sum()),
        "heads at the first token": float(scored.fires("first token").sum()),
        "largest score of shifting by one": float(previous.max()),
        "largest score of induction": float(scored.scores["induction"].max()),
    }
