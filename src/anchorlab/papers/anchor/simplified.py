"""The simplified model: two attention products carry the key to the end.

A model of two layers without mask, layer norm, residual connection, linear map and feed-forward network: X_out = Attn2
Attn1 X W1 W2. The answer is the token after the anchor 3.

Source: anchor functions, section 5.4, Figure 16.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import Map, MapFigure, at_least, grid
from anchorlab.lens import Record, look
from anchorlab.papers.anchor.settings import BATCH_NOTE, ITEMS, Setting, mirrored, only, paper_recipe
from anchorlab.papers.anchor.structures import NONE, WHOLE, structures
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, quick_recipe, reading
from anchorlab.studies.draws import by_seed
from anchorlab.studies.kit import attention_maps, example
from anchorlab.studies.readings import first_at_end, of_first, sampled
from anchorlab.tasks import Batch
from anchorlab.training import TrainedRun

LEARNED = 0.9  # a seed is judged from this test accuracy on: the paper explains a model that generalises
FIG_16 = "section 5.4 and Fig 16"
LOOKED_AT = 500  # test sequences over which attention is averaged
_FIRST, _ROWS, _SECOND = "blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre", "blocks.1.attn.hook_pattern"

QUICK = Setting(structures()[NONE], quick_recipe(2000, steps=2400, learning_rate=2e-3), seeds=28)
SCALED = Setting(structures()[NONE], paper_recipe(30_000, epochs=100, every=5, whole=100), seeds=2)
PAPER = Setting(structures()[NONE], paper_recipe(30_000, epochs=10_000), seeds=5)


experiments = only(NONE, "anchor/identity", NONE)


@dataclass(frozen=True)
class Mechanism:
    """Measures of the attention products on test sequences, each `[member]`; "others" excludes the anchor's row."""

    product: Float[Tensor, "member"]  # entry of Attn2 Attn1 from the last position to the key's
    anchor_to_key: Float[Tensor, "member"]  # attention of layer 0
    others_to_anchor: Float[Tensor, "member"]  # attention of layer 0
    kinds: Float[Tensor, "member"]  # share of the variance of layer 1's rows between the anchor's and the others' mean
    all_to_anchor: Float[Tensor, "member"]  # attention of layer 1
    rows_right: Float[Tensor, "member"]  # share of the output's rows whose greatest entry is the key's
    classified: Float[Tensor, "member"]  # share of items, at all positions of a key, whose own logit is greatest
    classified_alone: Float[Tensor, "member"]  # the same for the items' embeddings without a position vector


def read_mechanism(record: Record, weights: Mapping[str, Float[Tensor, "member ..."]], batch: Batch) -> Mechanism:
    """Measure the mechanism of Figure 16 in every member.

    The record holds patterns `[member batch head query key]` of both layers, the rows `[member batch position width]`
    that enter layer 1, and the output; `weights` are stacked, `[member ...]`.
    """
    first, rows, second = record[_FIRST][:, :, 0], record[_ROWS], record[_SECOND][:, :, 0]
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    each, length = torch.arange(len(anchors)), first.shape[-1]
    others = torch.arange(length) != anchors.unsqueeze(-1)  # [batch position]
    to_anchor = first[:, each, :, anchors].movedim(0, 1)  # [member batch query]
    return Mechanism(
        product=(second @ first)[:, each, -1, keys].mean(dim=-1),
        anchor_to_key=first[:, each, anchors, keys].mean(dim=-1),
        others_to_anchor=to_anchor[:, others].mean(dim=-1),
        kinds=variance_between(rows, anchors).mean(dim=-1),
        all_to_anchor=second[:, each, :, anchors].mean(dim=(0, 2)),
        rows_right=(record["output"].argmax(dim=-1) == batch.inputs[each, keys].unsqueeze(-1)).float().mean(dim=(1, 2)),
        classified=share_classified(item_logits(weights, weights["pos_embed.W_pos"][:, 1:])),
        classified_alone=share_classified(item_logits(weights, torch.zeros_like(weights["pos_embed.W_pos"][:, :1]))),
    )


def item_logits(
    weights: Mapping[str, Float[Tensor, "member ..."]], places: Float[Tensor, "member place width"]
) -> Float[Tensor, "member place item output"]:
    """Return (X_em + X_pos) W_V1 W_V2 for the embedding of every item and every vector of `places`.

    The places of a key are all positions but the first.
    """
    items = weights["embed.W_E"][:, ITEMS.start : ITEMS.stop]
    product = weights["blocks.0.attn.W_V"] @ weights["blocks.1.attn.W_V"]
    return (items.unsqueeze(1) + places.unsqueeze(2)) @ product.unsqueeze(1)


def share_classified(logits: Float[Tensor, "member place item output"]) -> Float[Tensor, "member"]:
    """Return the share of items, over all places, whose own token has the greatest logit."""
    return (logits.argmax(dim=-1) == torch.arange(ITEMS.start, ITEMS.stop)).float().mean(dim=(1, 2))


def variance_between(
    rows: Float[Tensor, "member batch position width"], at: Int[Tensor, "batch"]
) -> Float[Tensor, "member batch"]:
    """Return the share of the variance of a sequence's rows that lies between the row `at` and the mean of the others.

    1 if all other rows are equal but differ from this one, 0 if all rows are equal, 1 / (n-1) for n unrelated rows.
    """
    centred = rows - rows.mean(dim=2, keepdim=True)
    one = centred[:, torch.arange(len(at)), at].square().sum(dim=-1)
    whole, count = centred.square().sum(dim=(2, 3)), rows.shape[2]
    # The mean of the other rows is minus this row / (count - 1); `between` is the sum of squares of both kinds.
    between = one * count / (count - 1)
    return (between / whole).where(whole > 0, torch.zeros(()))


def mechanism_of(run: TrainedRun) -> Mechanism:
    """Measure the mechanism of the trained models."""
    batch, ensemble = run.experiment.task.sample("test", LOOKED_AT, seed=0), run.ensemble()
    record = look(ensemble, batch.inputs, record=[_FIRST, _ROWS, _SECOND])
    return read_mechanism(record, ensemble.weights, batch)


class Seen(Reading):
    """The test accuracy and the mechanism of the trained models."""

    accuracy = first_at_end("test", "accuracy")
    batch = sampled("test", LOOKED_AT)
    mechanism = of_first(mechanism_of)
    best = reading(lambda seen: int(seen.accuracy.argmax()))  # the member that generalises best

    def learned(self, values: Float[Tensor, "member"]) -> Float[Tensor, "learned"]:
        """Return the values of the seeds that learned."""
        return values[self.accuracy >= LEARNED]


@claim("section 5.3 and Fig 15, none", "can be 100 %, with large fluctuation, in five trials", at_least(0.2))
def generalises(seen: Seen) -> Bool[Tensor, "seed"]:
    """Two attention products and nothing else can generalise wholly.

    Share of seeds with a test accuracy of at least {WHOLE:g}.
    """
    return seen.accuracy >= WHOLE


@claim(FIG_16, "shifts the key to the anchor", at_least(0.8))
def shift(seen: Seen) -> Float[Tensor, "seed"]:
    """The first attention brings the key to the anchor's position.

    Attention of layer 0 from the anchor's position to the key's, mean over seeds with a test accuracy of at least
    {LEARNED:g}.
    """
    return seen.learned(seen.mechanism.anchor_to_key)


@claim(FIG_16, "broadcasts the anchor to other locations", at_least(0.8))
def broadcast(seen: Seen) -> Float[Tensor, "seed"]:
    """The first attention brings the anchor to all other positions.

    Attention of layer 0 to the anchor's position, mean over the other positions and over seeds with a test accuracy of
    at least {LEARNED:g}.
    """
    return seen.learned(seen.mechanism.others_to_anchor)


@claim(FIG_16, "only two types of rows", at_least(0.8))
def two_kinds(seen: Seen) -> Float[Tensor, "seed"]:
    """Layer 1 gets just two kinds of rows: one with the key, at the anchor, and all the others.

    Share of the variance of a sequence's rows that lies between the anchor's row and the mean of the others, mean over
    seeds with a test accuracy of at least {LEARNED:g}; one eighth for unrelated rows.
    """
    return seen.learned(seen.mechanism.kinds)


@claim(FIG_16, "broadcasts it to all locations", at_least(0.8))
def second_broadcast(seen: Seen) -> Float[Tensor, "seed"]:
    """The second attention brings the row that holds the key to all positions.

    Attention of layer 1 to the anchor's position, mean over all rows and over seeds with a test accuracy of at least
    {LEARNED:g}.
    """
    return seen.learned(seen.mechanism.all_to_anchor)


@claim(FIG_16, "all of the output vectors become the key's", at_least(0.9))
def all_rows(seen: Seen) -> Float[Tensor, "seed"]:
    """All rows of the simplified model's output name the key.

    Share of the output's rows whose greatest entry is the key's, over test sequences, mean over seeds with a test
    accuracy of at least {LEARNED:g}.
    """
    return seen.learned(seen.mechanism.rows_right)


@claim(FIG_16, "plays the role of classification", at_least(0.95))
def classifies(seen: Seen) -> Float[Tensor, "seed"]:
    """The product of both value maps classifies.

    Share of items, each at every position that a key can have, whose own entry is the greatest in its row of X(1) W_V1
    W_V2, mean over seeds with a test accuracy of at least {LEARNED:g}.
    """
    return seen.learned(seen.mechanism.classified)


def _maps(seen: Seen) -> MapFigure:
    run, batch = seen.first, seen.batch
    seed = run.experiment.members.seeds[seen.best]
    place, ticks = example(run.experiment.task, batch, batch.latents["anchor_positions"][:, 0] == 4)
    record = look(run.ensemble().select([seen.best]), batch.inputs[[place]], record=[_FIRST, _SECOND])
    first, second = record[_FIRST][0, 0, 0], record[_SECOND][0, 0, 0]
    return attention_maps(
        "Both attentions of a simplified model and their product (Fig 16)",
        {"Attn1, layer 0": first, "Attn2, layer 1": second, "Attn2 Attn1": second @ first},
        ticks,
        caption=f"Seed {seed}, the best in test, on one test sequence. In the paper "
        "layer 0 brings the key to the anchor's position and the anchor to all others, layer 1 the anchor's "
        "position, which holds the key by then, to all; their product reads the key everywhere.",
        seed=seed,
    )


def _classification(seen: Seen) -> MapFigure:
    weights, seed = seen.first.ensemble().select([seen.best]).weights, seen.first.experiment.members.seeds[seen.best]
    logits = item_logits(weights, weights["pos_embed.W_pos"][:, 1:])[0].mean(dim=0)  # [item output]
    return MapFigure(
        title="Every item through both value maps (Fig 16)",
        caption=f"Seed {seed}, the best in test. Rows are the items 20 to 100, each as "
        "its embedding plus a position vector, mean over the positions that a key can have; columns are the logits of "
        "the same items. In the paper the product plays the role of classification: the diagonal stands out.",
        maps=((Map("X(1) W_V1 W_V2", grid(logits[:, ITEMS.start : ITEMS.stop])),),),
        x_label="logit of item 20 + ...",
        y_label="item 20 + ...",
        value_label="logit",
        value_range=(None, None),
        signed=True,
        seeds=str(seed),
    )


STUDY = Study(
    "anchor/simplified",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        _maps,
        _classification,
        by_seed(
            "What the simplified model does, seed by seed",
            f"On {LOOKED_AT} test sequences. Attention from row to column position; two kinds of rows: the share of "
            "the variance of layer 1's rows that lies between the anchor's and the others. Items classified by "
            "W_V1 W_V2: from embedding plus position, as judged, and from the embedding alone.",
            lambda seen: {
                "test accuracy": seen.accuracy,
                "product, last to key": seen.mechanism.product,
                "Attn1, anchor to key": seen.mechanism.anchor_to_key,
                "Attn1, others to anchor": seen.mechanism.others_to_anchor,
                "two kinds of rows": seen.mechanism.kinds,
                "Attn2, all to anchor": seen.mechanism.all_to_anchor,
                "output rows right": seen.mechanism.rows_right,
                "items classified": seen.mechanism.classified,
                "by embedding alone": seen.mechanism.classified_alone,
            },
        ),
    ),
    profiles={
        "quick": Profile(QUICK, "The paper's structure, all of whose sizes are the vocabulary's 201."),
        "scaled": Profile(SCALED, "The paper's model and number of sequences; its schedule is shortened."),
        "paper": Profile(
            PAPER,
            "Sequences and epochs as for the model of Figure 16 in the authors' public code. The learning rate stays "
            f"at 2e-5 after epoch 4000, since no other schedule is given. {BATCH_NOTE}",
        ),
    },
    smoke=QUICK.shortened(steps=2),
    chosen_on=SEARCHED,
    other_task=mirrored,
)
