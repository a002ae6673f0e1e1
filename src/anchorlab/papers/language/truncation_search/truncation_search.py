"""Language models: which truncated matrix brings out facts, and does it hold up against controls?

Every matrix of every block is cut to several ranks, one at a time. The cut that makes facts of one half likeliest is
reported on the other half, which shares no subject with the first, with three controls: random changes that change the
output as much, the other words of the kind, and the perplexity of a page of English.

Source: truncated weights, sections 2.2 and 3, Table 1, appendix B.2.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Table, at_least, at_most, grid
from anchorlab.language.truncation_controls import TruncationControls
from anchorlab.language.truncations import TruncationSearch
from anchorlab.papers.language import laser
from anchorlab.papers.language.precision import precision_table
from anchorlab.papers.language.truncation_search import asking
from anchorlab.papers.language.truncation_search.asking import ObservedSearch, Seen, Setting
from anchorlab.papers.pretrained.opening import TINY
from anchorlab.patterns import matches
from anchorlab.studies import Measurement, Profile, Study, claim, measures_in, over, over_shared
from anchorlab.studies.claim import spread


@claim("truncated weights, section 2.2 and appendix B.2", "the last of 16 layers for facts", at_least(0.5))
def deep_feed_forward(seen: Seen) -> Measurement:
    """The best truncation is of a feed-forward matrix in a deep layer.

    Depth of the best truncation, as the share of layers up to and including its own; 0 if it is not in a feed-forward
    layer; chosen on the first half of the facts.
    """
    if seen.search is None:
        return Measurement(None)
    layers = max(map(laser.layer_of, seen.search.weights)) + 1
    within = matches(asking.FEED_FORWARD, seen.best.weight)
    return Measurement(
        (laser.layer_of(seen.best.weight) + 1) / layers if within else 0.0, detail=laser.in_words(seen.best)
    )


@claim("truncated weights, section 2.2", "rho smaller than 0.2 for many datasets", at_most(0.199))
def low_rank(seen: Seen) -> Measurement:
    """The best truncation keeps a low rank.

    Fraction of the rank that the best truncation keeps, chosen on the first half of the facts.
    """
    if seen.search is None:
        return Measurement(None)
    row = seen.search.loss[seen.search.weights.index(seen.best.weight)]
    tried = zip(seen.search.fractions, row.tolist(), strict=True)
    return Measurement(seen.best.fraction, detail="loss " + ", ".join(f"{loss:.2f} at {rho:g}" for rho, loss in tried))


@claim("truncated weights, section 2.2", "best practice", at_least(0.1))
def feed_forward_over_attention(seen: Seen) -> Measurement:
    """Truncation of a feed-forward matrix helps more than of an attention matrix.

    Mean log-probability of the right word under the best truncation of a feed-forward matrix, minus that under the best
    of an attention matrix, second half.
    """
    if not seen.others:
        return Measurement(None)
    found = [seen.others[name] for name in (asking.FEED_FORWARD_BEST, asking.ATTENTION_BEST)]
    gains = [one.cut.right - one.full.right for one in found]
    means = [f"{float(gain.mean()):+.2f} ({one.truncation})" for gain, one in zip(gains, found, strict=True)]
    return over_shared(
        laser.by_unit(found[0].units, gains[0] - gains[1]), laser.first_mean, laser.SUBJECTS, ", ".join(means)
    )


@claim("truncated weights, Table 1", "from 0.499 to 0.027, to 0.05 of it", at_most(0.5))
def the_falls(seen: Seen) -> Measurement:
    """The truncation takes probability from "the".

    Ratio of the mean probability of "the" with the best truncation to that without, second half.
    """
    return laser.the_with_and_without(seen.laser)


@claim("our control", "no value: components are removed selectively (section 2.2)", at_least(0.95), own=True)
def beats_random_changes(seen: Seen) -> Measurement:
    """What the truncation removes matters: random changes of the same size do less.

    Share of random changes of the same matrix, with an equal effect on its output, that raise the mean log-probability
    of the right word less than the truncation does; 0 if the truncation does not raise it; second half.
    """
    gains, own = seen.controls.random_gains, seen.controls.gain
    detail = f"truncation {own:+.2f}, random {spread(gains, 'draws')}"
    return over((gains < own) & (own > 0), of="draws", detail=detail)


@claim("our control", "no value: the model infers the answer (section 2.2)", at_least(0.1), own=True)
def right_over_others(seen: Seen) -> Measurement:
    """The right word gains more than other words of its kind.

    Mean log-probability of the right word minus that of all others of its kind together: with the best truncation minus
    without; second half.
    """
    controls = seen.controls
    before, after = (laser.among_its_kind(one) for one in (controls.full, controls.cut))
    detail = (
        f"right {controls.gain:+.2f}, others {controls.others_gain:+.2f}; first of its kind {before:.2f} to {after:.2f}"
    )
    if controls.gain <= 0:
        return Measurement(None, detail=detail)
    right, others = (controls.cut.right - controls.full.right, controls.cut.others - controls.full.others)
    units = [one.unit for one in seen.prompts]
    return over_shared(laser.by_unit(units, right - others), laser.first_mean, laser.SUBJECTS, detail)


@claim("our control", "no value: components are removed selectively (section 2.2)", at_most(1.05), own=True)
def text_is_spared(seen: Seen) -> Measurement:
    """The truncated model predicts ordinary text as well as the full model.

    Perplexity on a page of English with the best truncation divided by that without; a piece of text is a unit.
    """
    losses = [one.double().mean(dim=-1) for one in (seen.controls.full_losses, seen.controls.cut_losses)]
    before, after = seen.controls.perplexities

    def ratio(losses: Float[Tensor, "piece 2"]) -> Tensor:
        return (losses[:, 1] - losses[:, 0]).mean().exp()

    return over_shared(torch.stack(losses, dim=-1), ratio, "pieces", f"{before:.4g} to {after:.4g}")


def _figures(observed: ObservedSearch) -> list[MapFigure]:
    search, layers = observed.search, observed.layers
    the = search.answers.words[..., 0].exp().mean(-1) - search.full.words[:, 0].exp().mean()
    right = search.answers.right.exp().mean(-1) - search.full.right.exp().mean()
    return [
        _maps(search, layers, right, "the right word", "Right word"),
        _maps(search, layers, the, '"the"', 'Generic word "the"'),
        _maps(search, layers, -search.full.right.mean() - search.loss, "log p(right word)", "Gain", 1.0),
    ]


def _tables(observed: ObservedSearch) -> list[Table]:
    seen = observed.seen
    return [
        _compared(seen),
        _best(observed.search),
        _controls(seen.controls),
        precision_table(STUDY.claims, seen, observed.coarser),
        _told(observed),
    ]


def _maps(
    search: TruncationSearch,
    layers: int,
    values: Float[Tensor, "weight fraction"],
    of: str,
    title: str,
    most: float | None = None,
) -> MapFigure:
    ticks = tuple(f"{fraction:g}" for fraction in search.fractions)
    found = dict(zip(search.weights, values, strict=True))

    def row(part: str) -> tuple[Map, ...]:
        kinds = dict.fromkeys(weight.split(".", 2)[2] for weight in search.weights if matches(part, weight))
        return tuple(
            Map(kind, grid(torch.stack([found[f"blocks.{layer}.{kind}"] for layer in range(layers)])), (), ticks)
            for kind in kinds
        )

    return MapFigure(
        title=f"{title}: change by layer and fraction of the rank",
        caption=f"Mean change of {of} over the first half of the facts, one matrix cut at a time"
        f"{'' if most is None else f'; colours end at {most:g}'}.",
        maps=(row(asking.ATTENTION), row(asking.FEED_FORWARD)),
        x_label="ρ",
        y_label="layer",
        value_label=f"change of {of}",
        value_range=(None, most),
        signed=True,
    )


def _compared(seen: Seen) -> Table:
    rows = [row for name, one in seen.others.items() for row in laser.comparison(name, one)]
    title = "The second half of the facts without and with truncations"
    caption = "Mean probabilities; the two best truncations were chosen on the first half."
    return Table(title, caption, ("truncation", *laser.COMPARED[1:]), tuple(rows))


def _best(search: TruncationSearch) -> Table:
    losses, full = search.loss, -float(search.full.right.mean())
    rows: list[tuple[float, str, int, float]] = []
    for kind in dict.fromkeys(weight.split(".", 2)[2] for weight in search.weights):
        best = search.best(f"blocks.*.{kind}")
        fraction = best.fraction or 0.0
        loss = float(losses[search.weights.index(best.weight), search.fractions.index(fraction)])
        rows.append((loss, kind, laser.layer_of(best.weight), fraction))
    return Table(
        title="The best truncation of each kind of matrix",
        caption=f"First half of the facts; loss: mean of -log p(right word), {full:.4g} of the full model.",
        columns=("matrix", "layer", "ρ", "loss", "gain"),
        rows=tuple((kind, layer, fraction, loss, full - loss) for loss, kind, layer, fraction in sorted(rows)),
    )


def _controls(controls: TruncationControls) -> Table:
    full, cut = controls.perplexities
    random = controls.random
    right, others = (value.exp().mean(-1) for value in (random.right, random.others))
    rows: list[tuple[str | float | None, ...]] = [
        ("full model", *_means(controls.full.right, controls.full.others, controls.full.words[:, 0]), 0.0, 0.0, full),
        (laser.in_words(controls.truncation),
         *_means(controls.cut.right, controls.cut.others, controls.cut.words[:, 0]),
         controls.gain, controls.others_gain, cut),
        ("random changes, mean", float(right.mean()), float(others.mean()), float(random.words[..., 0].exp().mean()),
         float(controls.random_gains.mean()), float((random.others - controls.full.others).mean()), None),
    ]  # fmt: skip
    return Table(
        title="Controls of the best truncation",
        caption="Second half of the facts: mean probabilities, mean changes of the log-probabilities of the right word "
        "and of the wrong ones of its kind, and the perplexity of a page of English. Random changes change the "
        "matrix's output as much as the truncation.",
        columns=("change", "right", "wrong", '"the"', "log right", "log others", "perplexity"),
        rows=tuple(rows),
    )


def _means(*logarithms: Tensor) -> tuple[float, ...]:
    return tuple(float(one.exp().mean()) for one in logarithms)


def _told(observed: ObservedSearch) -> Table:
    title = "Sentences before and after"
    caption = f"Facts of the second half, with the likeliest next tokens; {laser.in_words(observed.seen.best)}."
    return Table(title, caption, ("right word", "full model", "truncated model"), observed.sentences)


STUDY = Study(
    "language/truncation-search",
    __doc__,
    measures_in(__name__),
    draws=[_figures, _tables],
    profiles={
        "quick": Profile(
            Setting(),
            "A small model whose weights come quantised to 4 bits (SmolLM2-135M-Instruct, Q4_1; also Gemma 3 "
            "270M, Q4_K_M) in place of the paper's Pythia-1B, on our own facts; each prompt follows the "
            "beginning-of-text token.",
        ),
        "paper": Profile(
            Setting("EleutherAI/pythia-1b"), "The paper's Pythia-1B at the end of its training; the facts are our own."
        ),
    },
    smoke=Setting(
        TINY, facts=8, searched=2, fractions=(0.0, 0.1), draws=2, checked=1, window=32, pieces=4, told=2, continued=2
    ),
    observe=asking.observe,
)
