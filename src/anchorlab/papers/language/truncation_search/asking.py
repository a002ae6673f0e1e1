"""The questions of `language/truncation-search`: its setting, the search, and the controls of the best truncation."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from anchorlab.engine import Status
from anchorlab.language import LanguageModel
from anchorlab.language.answers import Questions
from anchorlab.language.encode import windows
from anchorlab.language.next_words import continue_text
from anchorlab.language.prompts import Prompt, evenly, facts, split_by_unit
from anchorlab.language.sample_text import english_page
from anchorlab.language.truncation_controls import TruncationControls, control_truncation
from anchorlab.language.truncations import TruncationSearch, search_truncations
from anchorlab.models import Truncate
from anchorlab.papers.language.laser import SIX, Laser, ask_both, in_words
from anchorlab.papers.language.precision import BITS, Bits, requantised
from anchorlab.papers.pretrained.opening import ModelSetting, described, open_model, untrained_model
from anchorlab.studies import ObservationContext, Observed

FEED_FORWARD, ATTENTION = "blocks.*.mlp.*", "blocks.*.attn.*"
B_2 = 0.0125
"""The paper's rho for facts, of the input matrix of the last feed-forward layer of Pythia-1B (appendix B.2)."""

FEED_FORWARD_BEST, ATTENTION_BEST = "best of feed-forward layers", "best of attention"


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The search and its controls."""

    facts: int = 1254  # the number of prompts about facts, evenly spaced among two for each of 627 facts
    # the number of prompts used in the search, evenly spaced in one half; the other half is reported
    searched: int = 48
    fractions: tuple[float, ...] = (0.0, 0.01, 0.2, 0.5)  # the fractions of the rank to keep, without 1, the full model
    draws: int = 50  # the number of random changes that change the output as much
    checked: int = 10  # the number of random changes under coarser weights, and for an untrained model
    # the number of tokens of each piece of the page of English, and of pieces at most
    window: int = 256
    pieces: int = 100
    told: int = 6  # the number of facts whose sentences are shown
    continued: int = 6  # the number of tokens by which these sentences are continued


@dataclass(frozen=True)
class Seen:
    """The answers of one model."""

    # all truncations, on the first half of the facts; None for a model that is not searched
    search: TruncationSearch | None
    controls: TruncationControls  # the controls of the best truncation, on the second half
    prompts: tuple[Prompt, ...]  # the prompts of the second half
    # the best truncations of feed-forward layers and of attention, and the paper's, on the second half
    others: dict[str, Laser]

    @cached_property
    def best(self) -> Truncate:
        """The chosen truncation."""
        return self.controls.truncation

    @property
    def laser(self) -> Laser:
        """The answers to the second half of the facts without and with the best truncation."""
        return Laser(in_words(self.best), self.prompts, self.controls.full, self.controls.cut)


@dataclass(frozen=True, kw_only=True)
class ObservedSearch(Observed[Seen]):
    """Answers of a pretrained model, of quantised copies and of an untrained model, all cut at the same matrix."""

    coarser: Mapping[Bits, Seen]
    layers: int
    sentences: tuple[tuple[str, str, str], ...]  # of some facts: the right word, the sentence without and with the cut

    @property
    def search(self) -> TruncationSearch:
        """All truncations of the model."""
        assert self.seen.search is not None
        return self.seen.search


def observe(setting: Setting, context: ObservationContext) -> ObservedSearch:
    """Search the truncations of the setting's model and test the best; a killed search resumes where it stopped."""
    model = open_model(setting, context)
    first, second = split_by_unit(evenly(facts(SIX, (0, 1)), setting.facts))
    search = search_truncations(
        Questions(model, evenly(first, setting.searched)),
        [FEED_FORWARD, ATTENTION],
        setting.fractions,
        keep=context.folder,
        progress=lambda done, total: context.report(Status(total, done, "cutting matrices")),
    )
    steps = 3 + len(BITS)
    context.report(Status(steps, 0, "controls"))
    best = search.best()
    compared = {
        FEED_FORWARD_BEST: search.best(FEED_FORWARD),
        ATTENTION_BEST: search.best(ATTENTION),
        "appendix B.2": Truncate(weight=f"blocks.{len(model.blocks) - 1}.mlp.W_in", fraction=B_2),
    }

    def control(
        model: LanguageModel, compared: Mapping[str, Truncate], draws: int, search: TruncationSearch | None = None
    ) -> Seen:
        """Ask a model under the best truncation, under its controls, and under the truncations compared with it."""
        asked = Questions(model, second)
        window = min(setting.window, model.context)
        text = windows(model.tokenizer, english_page().text, window, model.context)[: setting.pieces]
        controls = control_truncation(
            asked, best, text, draws, progress=lambda done, total: context.report(Status(total, done, "random changes"))
        )
        others = {name: ask_both(asked, one, controls.full) for name, one in compared.items()}
        return Seen(search, controls, asked.prompts, others)

    trained = control(model, compared, setting.draws, search)
    context.report(Status(steps, 1, "sentences"))
    told = tuple(
        (str(prompt.answer), *(continue_text(model, prompt.text, setting.continued, edits) for edits in ([], [best])))
        for prompt in evenly(second, setting.told)
    )
    coarser = {}
    for place, bits in enumerate(BITS):
        context.report(Status(steps, 2 + place, f"weights of {bits} bits"))
        coarser[bits] = control(requantised(model, bits), compared, setting.checked)
    context.report(Status(steps, steps - 1, "an untrained model"))
    return ObservedSearch(
        seen=trained,
        untrained=control(untrained_model(model), {}, setting.checked),
        model=described(setting, model),
        seeds="0",
        coarser=coarser,
        layers=len(model.blocks),
        sentences=told,  # type: ignore[arg-type]
    )
