"""Buffers: does each step of a chain keep a subspace of its own?

A model of three layers with one head each follows two steps of a chain. Each head may write what it finds into a
subspace of its own, a buffer, that the next head reads: then earlier symbols stay readable, and exchanging one buffer
between two queries exchanges their answers. The models of `retrieval/circuits` are read likewise.

Source: Wang et al., The buffer mechanism for multi-step information reasoning in language models (2024).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.papers.retrieval import circuits, one_head
from anchorlab.papers.retrieval.buffers import reading
from anchorlab.papers.retrieval.buffers.reading import SOLVED, Seen
from anchorlab.studies import SEARCHED, Measurement, Profile, Study, claim, mean_of_known, measures_in, precondition
from anchorlab.tasks.retrieval import StepRetrieval
from anchorlab.training import AdamW, Evaluation, Experiment, Members, Recipe, Stream, WarmupCosine

SEEN = range(1100, 1105)  # after these, claims on two steps were restricted to models that answer
FIRST = 1200  # of the seeds on two steps

ANSWERED = f"with an accuracy of at least {SOLVED:g} on fresh training sequences at the end"
JUDGED = "of models that answer the training sequences"
SOLVED_CHAINS = one_head.SOLVED
FOLLOWING = "of models of retrieval/circuits that solve the problem"
HALF, NEARLY_ALL = 0.5, 0.9
"""Thresholds for one model's value, used if values vary so much over seeds that their mean says little."""

MATCHED = "a matching score near 1, not checked against the full text"
CHAINS = ("chains-one-layer-each", "chains-move-answers", "chains-later-follow", "chains-match-start", "chains-apart")


@dataclass(frozen=True)
class Setting:
    """What a profile trains: models on two steps of tokens, and the models on vectors of `retrieval/circuits`."""

    two_steps: Experiment
    chains: Experiment


@precondition("section 3", "accuracy 1", at_least(0.5))
def learned(seen: Seen) -> Bool[Tensor, "seed"]:
    """Most models answer the training sequences.

    Share of models {ANSWERED}.
    """
    return seen.solved


@claim("section 3", "test accuracy about 1", at_least(0.9))
def generalises(seen: Seen) -> Float[Tensor, "seed"]:
    """Two steps are followed through pairs of symbols that training never had.

    Accuracy on test sequences at the end, of all models.
    """
    return seen.tested["two steps"]


@claim("section 4", "x_1 in layer 1, x_2 in layer 2, counted from 0", at_least(0.5))
def one_layer_each(seen: Seen) -> Float[Tensor, "seed"]:
    """Each step of the chain enters the query's stream in a layer of its own.

    Rise of the accuracy of a linear probe in a layer: for x_1 in layer 1 or for x_2 in layer 2, whichever is smaller,
    {JUDGED}.
    """
    rise = seen.buffers.decoded[seen.solved].diff(dim=1)
    return torch.minimum(rise[:, 1, 1], rise[:, 2, 2])


@claim("section 4", MATCHED, at_least(0.8))
def matches_start(seen: Seen) -> Bool[Tensor, "seed"]:
    """The second head finds the pair that begins with the query's symbol: its W_QK matches the buffer of head 0.

    Share, {JUDGED}, in which the softmax over keys of E W_QK1 W_VO0ᵀ Eᵀ is at least {HALF:g} at the equal
    symbol, mean over symbols.
    """
    return seen.buffers.matched[seen.solved, 0] >= HALF


@claim("section 4", MATCHED, at_least(0.8))
def matches_middle(seen: Seen) -> Bool[Tensor, "seed"]:
    """The third head finds the pair that begins with the result of the first step: its W_QK matches two buffers.

    Share, {JUDGED}, in which the softmax over keys of E W_VO1 W_QK2 W_VO0ᵀ Eᵀ is at least {HALF:g} at the
    equal symbol, mean over symbols.
    """
    return seen.buffers.matched[seen.solved, 1] >= HALF


@claim("our question: a staircase or a sliding window", "implied by separate buffers", at_least(0.9), own=True)
def not_overwritten(seen: Seen) -> Float[Tensor, "seed"]:
    """No buffer is overwritten: after the last layer the first step's result is still readable.

    Accuracy of a linear probe of x_1 in the query's stream after the last layer, {JUDGED}.
    """
    return seen.buffers.decoded[seen.solved, -1, 1]


@claim("our question: is the buffer enough?", "implied by reading one buffer", at_least(0.9), own=True)
def buffer_moves_answer(seen: Seen) -> Float[Tensor, "seed"]:
    """The third head reads the buffer of head 1: exchanging it between two queries exchanges their answers.

    Share of sequences whose answer is the other query's, once the subspace that head 1 writes to is exchanged after
    layer 1, {JUDGED}.
    """
    return seen.buffers.moved[seen.solved, 1]


@claim("our question: is only the buffer read?", "implied by reading one buffer", at_least(0.9), own=True)
def rest_moves_nothing(seen: Seen) -> Float[Tensor, "seed"]:
    """The third head reads nothing else: exchanging all but the buffer of head 1 leaves the answers.

    Share of right answers once everything outside the subspace that head 1 writes to is exchanged after layer 1,
    {JUDGED}.
    """
    return seen.buffers.kept[seen.solved]


@claim("our question: how separate are the buffers?", "implied by separate buffers", at_most(0.5), own=True)
def apart(seen: Seen) -> Float[Tensor, "seed"]:
    """Training sets apart what successive heads write, more than chance would.

    Mean squared cosine of the principal angles between the subspaces that two heads write to, divided by that of random
    subspaces of the same dimensions, mean over heads 0 and 1 and heads 1 and 2, {JUDGED}.
    """
    return seen.buffers.against_random[seen.solved, :2].mean(dim=1)


@precondition(
    "our question: do they have buffers, too?", "loss below 0.01 in retrieval/circuits", at_least(0.5), of=CHAINS
)
def chains_solved(seen: Seen) -> Bool[Tensor, "seed"]:
    """Most models of retrieval/circuits solve the problem.

    Share of models with a loss of at most {SOLVED_CHAINS:g} on fresh sequences at the end.
    """
    return seen.following


@claim("our question: do they have buffers, too?", "no paper", at_least(0.5), own=True)
def chains_one_layer_each(seen: Seen) -> Float[Tensor, "seed"]:
    """In the models of retrieval/circuits, too, each symbol enters the query's stream in one layer.

    Largest rise, in a layer, of the share of a symbol's variance that a linear map reads, the smallest over symbols
    after the query's own, {FOLLOWING}.
    """
    return seen.chains.decoded[seen.following].diff(dim=1)[:, :, 1:].amax(dim=1).amin(dim=1)


@claim("our question: do they have buffers, too?", "no paper", at_least(0.8), own=True)
def chains_move_answers(seen: Seen) -> Bool[Tensor, "seed"]:
    """In the models of retrieval/circuits, too, exchanging a buffer between two queries exchanges the answer in it.

    Share, {FOLLOWING}, in which at least {NEARLY_ALL:g} of answers, mean over symbols, are nearer to the other query's
    once the subspace written to by the layer that brings the symbol is exchanged after this layer.
    """
    return seen.chains.moved_own[seen.following] >= NEARLY_ALL


@claim("our question: do they have buffers, too?", "no paper", at_least(0.8), own=True)
def chains_later_follow(seen: Seen) -> Bool[Tensor, "seed"]:
    """In the models of retrieval/circuits, too, later heads read the buffer of the first step.

    Share, {FOLLOWING}, in which at least {NEARLY_ALL:g} of the answers that later layers bring are nearer to the other
    query's once the subspace written to by the layer that brings x_1 is exchanged after this layer; without models in
    which one layer brings all symbols.
    """
    moved = seen.chains.moved_later[seen.following]
    return moved[~moved.isnan()] >= NEARLY_ALL


@claim("our question: do they have buffers, too?", "no paper", at_least(0.5), own=True)
def chains_match_start(seen: Seen) -> Float[Tensor, "seed"]:
    """In the models of retrieval/circuits, too, scores that find the first pair match what the joining layer writes.

    Cosine between the identity and the kernel E W_QK W_VOᵀ Eᵀ on the features of symbols, with the norms' gains, for
    the layers with the most attention within first pairs (joining, W_VO) and from queries to them (W_QK), {FOLLOWING}.
    """
    return seen.matched[seen.following]


@claim("our question: how separate are the buffers?", "implied by separate buffers", at_most(0.5), own=True)
def chains_apart(seen: Seen) -> Measurement:
    """In the models of retrieval/circuits, too, training sets apart what successive layers write.

    Mean squared cosine of the principal angles between the subspaces that successive layers, among those that bring a
    symbol, write to at the query, divided by that of random subspaces of the same dimensions, {FOLLOWING};
    without models in which one layer brings all symbols.
    """
    return mean_of_known(seen.chains.successive[seen.following].unsqueeze(1))


QUICK = Setting(
    Experiment(
        StepRetrieval(symbols=30),
        DecoderSpec(
            layers=3, heads=1, width=128, head_width=32, feed_forward=False, layer_norm=False, initialisation="gpt2"
        ),
        Recipe(
            data=Stream(),
            optimiser=AdamW(learning_rate=2e-3, weight_decay=0.1),
            schedule=WarmupCosine(warmup=100, horizon=4000, end=0.1),
            batch=64,
            duration=4000,
            clip=1.0,
            evaluation=Evaluation(every=400, size=500),
        ),
        Members(seeds=range(FIRST, FIRST + 30)),  # 13 of 14 would not settle a share of 0.8
        "two steps",
    ),
    one_head.QUICK,
)
PAPER = Setting(
    Experiment(
        StepRetrieval(),
        DecoderSpec(layers=3, heads=1, head_width=64, initialisation="gpt2"),
        QUICK.two_steps.recipe.replace(
            optimiser=AdamW(learning_rate=1e-4, weight_decay=0.1),
            schedule=WarmupCosine(warmup=1000, horizon=100_000, end=0.1),
            batch=100,
            duration=100_000,
            evaluation=Evaluation(every=2000, size=1000),
        ),
        Members(seeds=range(FIRST, FIRST + 3)),
        "two steps",
    ),
    circuits.PAPER,
)
SMOKE = Setting(
    replace(
        QUICK.two_steps.take(range(2)),
        model=QUICK.two_steps.model.replace(width=16, head_width=8),
        recipe=QUICK.two_steps.recipe.replace(duration=4, evaluation=Evaluation(every=2, size=100)),
    ),
    one_head.SMOKE,
)

STUDY = Study(
    "retrieval/buffers",
    __doc__,
    measures_in(__name__),
    trains=lambda setting: {"two steps": setting.two_steps, "chains": setting.chains},
    reads=Seen,
    draws=(reading.readable, reading.readable_vectors, reading.moved_figure, reading.numbers, reading.vector_numbers),
    paper="Buffer mechanism",
    profiles={
        "quick": Profile(
            QUICK,
            "Three chains of two steps among 30 symbols, with the source's separation of the pairs and GPT-2's "
            "initial weights; and the models of retrieval/circuits under its quick profile, with that study's seeds. "
            "The source has 81 symbols.",
        ),
        "paper": Profile(
            PAPER,
            "The source's symbols and model, with norms after the sums. Its training was not checked: its length, "
            "batches and learning rate and GPT-2's initial weights are our choice, so a value outside a band "
            "contradicts nothing. The other models are those of retrieval/circuits under its paper profile.",
        ),
    },
    smoke=SMOKE,
    chosen_on=(*SEARCHED, *SEEN),
)
