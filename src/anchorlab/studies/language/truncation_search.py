"""Language models: which truncated matrix brings out facts, and whether it does.

Every matrix of every block is cut to several ranks, one at a time. The cut under which one half of the facts is
likeliest is reported on the other half, which shares no country with the first, beside three controls: random changes
of the same norm, the other countries, and the perplexity of a page of English.

Source: truncated weights, sections 2.2 and 3, Table 1, appendix B.2.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.engine import Status
from anchorlab.findings import Map, MapFigure, Table, at_least, at_most, grid
from anchorlab.language import LanguageModel
from anchorlab.language.answers import Questions
from anchorlab.language.edited import continue_text
from anchorlab.language.encode import windows
from anchorlab.language.page import english_page
from anchorlab.language.prompts import Prompt, facts, split_by_unit
from anchorlab.language.truncation_controls import TruncationControls, control_truncation
from anchorlab.language.truncations import FRACTIONS, TruncationSearch, search_truncations
from anchorlab.models import Truncate
from anchorlab.studies.claim import Measurement, claim, measures_in, over, spread
from anchorlab.studies.language.laser import (
    COMPARED,
    Laser,
    among_its_kind,
    ask_both,
    by_unit,
    comparison,
    first_mean,
    in_words,
    layer_of,
    the_with_and_without,
)
from anchorlab.studies.language.opening import TINY, ModelSetting, described, open_model, untrained_model
from anchorlab.studies.shared_seeds import over_shared
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.studies.workplace import Workplace

FEED_FORWARD, ATTENTION = "blocks.*.mlp.*", "blocks.*.attn.*"
B_2 = 0.0125
"""The paper's rho for facts, of the input matrix of the last feed-forward layer of Pythia-1B (appendix B.2)."""


@dataclass(frozen=True)
class Setting(ModelSetting):
    """What is searched and how it is controlled.

    Fields
        facts: the number of facts; one half is searched, the other reported
        fractions: the fractions of the rank that are kept, without 1, the full model
        draws: the number of random changes of the same norm
        window: the number of tokens of each piece of the page of English
        told: the number of facts whose sentences are shown
        continued: the number of tokens by which these sentences are continued
    """

    facts: int = 149
    fractions: tuple[float, ...] = FRACTIONS
    draws: int = 20
    window: int = 256
    told: int = 6
    continued: int = 6


@dataclass(frozen=True)
class Seen:
    """What one model answers.

    Fields
        search: all truncations, on the first half of the facts; None for an untrained model, which is not searched
        controls: of the best truncation, on the second half
        prompts: the second half
        others: the best truncations of feed-forward layers and of attention, and the paper's, on the second half
    """

    search: TruncationSearch | None
    controls: TruncationControls
    prompts: tuple[Prompt, ...]
    others: dict[str, Laser]

    @cached_property
    def best(self) -> Truncate:
        """The truncation that was chosen."""
        return self.controls.truncation

    @property
    def laser(self) -> Laser:
        """The second half of the facts without and with the best truncation."""
        return Laser(in_words(self.best), self.prompts, self.controls.full, self.controls.cut)


@dataclass(frozen=True)
class Observed:
    """A pretrained model, the same architecture with random weights and the same cut, and sentences of the first.

    `sentences` has, for some facts, the country, then the sentence without and with the truncation.
    """

    trained: Seen
    untrained: Seen
    layers: int
    sentences: tuple[tuple[str, str, str], ...]
    model: str


def observe(setting: Setting, workplace: Workplace) -> Observed:
    """Search the truncations of the setting's model, and control the best; a killed search goes on where it stopped."""
    model = open_model(setting, workplace)
    first, second = split_by_unit(facts()[: setting.facts])
    search = search_truncations(
        Questions(model, first),
        [FEED_FORWARD, ATTENTION],
        setting.fractions,
        keep=workplace.folder,
        progress=lambda done, total: workplace.report(Status(total, done, "cutting matrices")),
    )
    workplace.report(Status(3, 0, "controls"))
    asked, best = Questions(model, second), search.best()
    compared = {
        "best of feed-forward layers": search.best(FEED_FORWARD),
        "best of attention": search.best(ATTENTION),
        "appendix B.2": Truncate(weight=f"blocks.{len(model.blocks) - 1}.mlp.W_in", fraction=B_2),
    }
    controls = _control(asked, best, setting)
    others = {name: ask_both(asked, one, controls.full) for name, one in compared.items()}
    workplace.report(Status(3, 1, "sentences"))
    told = tuple(
        (str(prompt.answer), *(continue_text(model, prompt.text, setting.continued, edits) for edits in ([], [best])))
        for prompt in second[:: max(1, len(second) // setting.told)][: setting.told]
    )
    workplace.report(Status(3, 2, "an untrained model"))
    untrained = Seen(None, _control(Questions(untrained_model(model), second), best, setting), second, {})
    trained = Seen(search, controls, second, others)
    return Observed(trained, untrained, len(model.blocks), told, described(setting, model))  # type: ignore[arg-type]


def _control(asked: Questions, best: Truncate, setting: Setting) -> TruncationControls:
    model: LanguageModel = asked.model
    text = windows(model.tokenizer, english_page().text, min(setting.window, model.context), model.context)
    return control_truncation(asked, best, text, setting.draws)


@claim(
    "The best truncation is of a feed-forward matrix in a deep layer",
    at="truncated weights, section 2.2 and appendix B.2",
    paper="the last of 16 layers for facts",
    band=at_least(0.5),
)
def deep_feed_forward(seen: Seen) -> Measurement:
    """Share of layers up to and including the best truncation's, if it is of a feed-forward layer, otherwise 0; chosen
    on the first half of the facts."""
    if seen.search is None:
        return Measurement(None)
    layers = max(map(layer_of, seen.search.weights)) + 1
    within = fnmatchcase(seen.best.weight, FEED_FORWARD)
    return Measurement((layer_of(seen.best.weight) + 1) / layers if within else 0.0, detail=in_words(seen.best))


@claim(
    "The best truncation keeps a low rank",
    at="truncated weights, section 2.2",
    paper="rho below 0.2 for many datasets",
    band=at_most(0.2),
)
def low_rank(seen: Seen) -> Measurement:
    """Fraction of the rank that the best truncation keeps, of those tried; chosen on the first half of the facts."""
    if seen.search is None:
        return Measurement(None)
    row = seen.search.loss[seen.search.weights.index(seen.best.weight)]
    tried = zip(seen.search.fractions, row.tolist(), strict=True)
    return Measurement(seen.best.fraction, detail="loss " + ", ".join(f"{loss:.2f} at {rho:g}" for rho, loss in tried))


@claim(
    "Truncation of a feed-forward matrix helps more than of an attention matrix",
    at="truncated weights, section 2.2",
    paper="best practice",
    band=at_least(0.1),
)
def feed_forward_over_attention(seen: Seen) -> Measurement:
    """Mean log-probability of the right country under the best truncation of each, difference, second half."""
    if not seen.others:
        return Measurement(None)
    found = [seen.others[name] for name in ("best of feed-forward layers", "best of attention")]
    gains = [one.cut.right - one.full.right for one in found]
    means = [f"{float(gain.mean()):+.2f} ({one.truncation})" for gain, one in zip(gains, found, strict=True)]
    return over_shared(by_unit(found[0].units, gains[0] - gains[1]), first_mean, "countries", ", ".join(means))


@claim(
    'The truncation takes probability from "the"',
    at="truncated weights, Table 1",
    paper="from 0.499 to 0.027, to 0.05 of it",
    band=at_most(0.5),
)
def the_falls(seen: Seen) -> Measurement:
    """Mean probability of "the" with the best truncation over that without it, second half."""
    return the_with_and_without(seen.laser)


@claim(
    "What the truncation removes matters: other changes of that size do less",
    at="truncated weights, section 2.2 (first control)",
    paper="selectively removing components",
    band=at_least(0.95),
)
def beats_random_changes(seen: Seen) -> Measurement:
    """Share of random changes of the same matrix and norm that raise the mean log-probability of the right country by
    less than the truncation, which must raise it; second half."""
    gains, own = seen.controls.random_gains, seen.controls.gain
    detail = f"truncation {own:+.2f}, random {spread(gains, 'draws')}"
    return over((gains < own) & (own > 0), of="draws", detail=detail)


@claim(
    "The right word gains more than other words of its kind",
    at="truncated weights, section 2.2 (second control)",
    paper="inferring the answer",
    band=at_least(0.1),
)
def right_over_others(seen: Seen) -> Measurement:
    """Mean log-probability of the right country, minus that of all other countries together, with the best truncation,
    minus the same without it; second half."""
    controls = seen.controls
    before, after = (among_its_kind(one) for one in (controls.full, controls.cut))
    detail = (
        f"right {controls.gain:+.2f}, others {controls.others_gain:+.2f}; "
        f"first among countries {before:.2f} to {after:.2f}"
    )
    if controls.gain <= 0:
        return Measurement(None, detail=detail)
    right, others = (controls.cut.right - controls.full.right, controls.cut.others - controls.full.others)
    units = [one.unit for one in seen.prompts]
    return over_shared(by_unit(units, right - others), first_mean, "countries", detail)


@claim(
    "The truncated model predicts ordinary text as well as before",
    at="truncated weights, section 2.2 (third control)",
    paper="components are removed selectively",
    band=at_most(1.05),
)
def text_is_spared(seen: Seen) -> Measurement:
    """Perplexity on a page of English with the best truncation over that without it."""
    before, after = seen.controls.perplexities
    return Measurement(after / before, detail=f"{before:.4g} to {after:.4g}")


def analyse(observed: Observed, setting: Setting) -> Analysis:
    """Draw the search as heat maps, and list the best truncations, the controls and sentences."""
    seen = observed.trained
    assert seen.search is not None
    search = seen.search
    the = search.answers.words[..., 0].exp().mean(-1) - search.full.words[:, 0].exp().mean()
    right = search.answers.right.exp().mean(-1) - search.full.right.exp().mean()
    return Analysis(
        seen,
        figures=[
            _maps(search, observed.layers, right, "the right country", "Right word"),
            _maps(search, observed.layers, the, '"the"', 'Generic word "the"'),
            _maps(
                search, observed.layers, -search.full.right.mean() - search.loss, "log p(right country)", "Gain", 1.0
            ),
        ],
        tables=[_compared(seen), _best(search), _controls(seen.controls), _told(observed, seen.best)],
        seeds="0",
        model=observed.model,
        untrained=observed.untrained,
    )


def _maps(
    search: TruncationSearch,
    layers: int,
    values: Float[Tensor, "weight fraction"],
    of: str,
    title: str,
    most: float | None = None,
) -> MapFigure:
    """A map of layers and fractions for each kind of matrix; colours end at `most`."""
    ticks = tuple(f"{fraction:g}" for fraction in search.fractions)
    found = dict(zip(search.weights, values, strict=True))

    def row(part: str) -> tuple[Map, ...]:
        kinds = dict.fromkeys(weight.split(".", 2)[2] for weight in search.weights if fnmatchcase(weight, part))
        return tuple(
            Map(kind, grid(torch.stack([found[f"blocks.{layer}.{kind}"] for layer in range(layers)])), (), ticks)
            for kind in kinds
        )

    return MapFigure(
        title=f"{title}: change by layer and fraction of the rank",
        caption=(
            f"Mean change of {of} over the first half of the facts, one matrix cut at a time"
            f"{'' if most is None else f'; colours end at {most:g}'}."
        ),
        maps=(row(ATTENTION), row(FEED_FORWARD)),
        x_label="ρ",
        y_label="layer",
        value_label=f"change of {of}",
        value_range=(None, most),
        signed=True,
    )


def _compared(seen: Seen) -> Table:
    rows = [row for name, laser in seen.others.items() for row in comparison(name, laser)]
    return Table(
        title="The second half of the facts without and with truncations",
        caption="Mean probabilities; the two best truncations were chosen on the first half.",
        columns=("truncation", *COMPARED[1:]),
        rows=tuple(rows),
    )


def _best(search: TruncationSearch) -> Table:
    losses, full = search.loss, -float(search.full.right.mean())
    rows: list[tuple[float, str, int, float]] = []
    for kind in dict.fromkeys(weight.split(".", 2)[2] for weight in search.weights):
        best = search.best(f"*.{kind}")
        fraction = best.fraction or 0.0
        loss = float(losses[search.weights.index(best.weight), search.fractions.index(fraction)])
        rows.append((loss, kind, layer_of(best.weight), fraction))
    return Table(
        title="The best truncation of each kind of matrix",
        caption=f"First half of the facts; loss: mean of -log p(right country), {full:.4g} of the full model.",
        columns=("matrix", "layer", "ρ", "loss", "gain"),
        rows=tuple((kind, layer, fraction, loss, full - loss) for loss, kind, layer, fraction in sorted(rows)),
    )


def _controls(controls: TruncationControls) -> Table:
    full, cut = controls.perplexities
    random = controls.random
    right, others = (value.exp().mean(-1) for value in (random.right, random.others))
    rows: list[tuple[str | float | None, ...]] = [
        ("full model", *_means(controls.full.right, controls.full.others, controls.full.words[:, 0]), 0.0, 0.0, full),
        (in_words(controls.truncation), *_means(controls.cut.right, controls.cut.others, controls.cut.words[:, 0]),
         controls.gain, controls.others_gain, cut),
        ("random changes, mean", float(right.mean()), float(others.mean()), float(random.words[..., 0].exp().mean()),
         float(controls.random_gains.mean()), float((random.others - controls.full.others).mean()), None),
    ]  # fmt: skip
    return Table(
        title="Controls of the best truncation",
        caption=(
            "Second half of the facts: mean probabilities, mean changes of the log-probabilities of the right country "
            "and of the others, and the perplexity of a page of English."
        ),
        columns=("change", "right", "other countries", '"the"', "log right", "log others", "perplexity"),
        rows=tuple(rows),
    )


def _means(*logarithms: Tensor) -> tuple[float, ...]:
    return tuple(float(one.exp().mean()) for one in logarithms)


def _told(observed: Observed, best: Truncate) -> Table:
    return Table(
        title="Sentences before and after",
        caption=f"The likeliest next token, {in_words(best)}; facts of the second half.",
        columns=("right word", "full model", "truncated model"),
        rows=observed.sentences,
    )


STUDY = Study(
    "language/truncation-search",
    __doc__,
    measures_in(__name__),
    analyse,
    {
        "quick": Profile(
            Setting(),
            "SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1), in place of the paper's Pythia-1B, on own facts; "
            "<|endoftext|> before each prompt.",
        ),
        "paper": Profile(
            Setting("EleutherAI/pythia-1b"), "The paper's Pythia-1B at the end of its training; the facts are our own."
        ),
    },
    Setting(TINY, facts=8, fractions=(0.0, 0.1), draws=2, window=32, told=2, continued=2),
    observe=observe,
)
