"""Buffers: does each step of a chain keep a subspace of its own?

A model of three layers with one head each follows two steps of a chain. Each head may write what it finds into a
subspace of its own, a buffer, that the next head reads: then earlier symbols stay readable, and exchanging one buffer
between two queries exchanges their answers.

Source: Wang et al., The buffer mechanism for multi-step information reasoning in language models (2024).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least
from anchorlab.lens import Intervention, Operand, look, ov, probe, qk
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.models import DecoderSpec
from anchorlab.studies.claim import claim, measures_in, precondition
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, column_table, curves_against
from anchorlab.studies.seeds import SEARCHED, fresh
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import TokenRetrieval
from anchorlab.tasks.retrieval import StepRetrieval
from anchorlab.theory import retrieval_circuit
from anchorlab.training import AdamW, Evaluation, Experiment, Members, Recipe, Stream, TrainedRun, WarmupCosine

SEQUENCES = 1000  # for the probes and exchanges
STAGES = ("embedding", "layer 0", "layer 1", "layer 2")
STREAM = ("blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(3)))
BETWEEN = STREAM[2]  # after the head that finds x_1, before the head that reads it
ENERGY = 0.99  # a head's subspace holds this share of what it writes for all tokens


def experiments(setting: Experiment) -> list[Experiment]:
    """Return the only experiment, the setting itself."""
    return [setting]


@dataclass(frozen=True)
class Queries:
    """Sequences whose last token is a query, and the same with the query of another chain.

    Shapes
        inputs, others: `[batch position]`; they differ in the last token alone
        chain: `[batch value]`, the symbols x_0, x_1, x_2 of the query's chain
        other_end: `[batch]`, the x_2 of the other chain
    """

    inputs: Int[Tensor, "batch position"]
    others: Int[Tensor, "batch position"]
    chain: Int[Tensor, "batch value"]
    other_end: Int[Tensor, "batch"]


def queries(task: StepRetrieval | TokenRetrieval, n: int) -> Queries:
    """Draw `n` test sequences of chains of two steps."""
    batch = task.sample("test", n, seed=1)
    symbols, asked = batch.latents["symbols"], batch.latents["queries"][:, -1]
    row = torch.arange(n)
    chain, other = symbols[row, :, asked], symbols[row, :, (asked + 1) % task.chains]
    others = batch.inputs.clone()
    others[:, -1] = other[:, 0]
    return Queries(batch.inputs, others, chain, other[:, -1])


@dataclass(frozen=True)
class Buffers:
    """What the buffers of each member hold and do.

    Fields
        decoded: how often a linear probe reads x_0, x_1 and x_2 from the query's stream, `[member stage value]`
        matched: how far the second and the third head match equal symbols, `[member reader]`
        overlap: between what heads 0 and 1, 0 and 2, 1 and 2 write: the mean squared cosine of the principal angles,
            `[member pair]`
        dimensions: of the subspace that each head writes to, `[member head]`
        moved: how often the answer is the other query's once x_1's buffer is exchanged
        kept: how often the answer stays right once all but this buffer is exchanged
    """

    decoded: Float[Tensor, "member stage value"]
    matched: Float[Tensor, "member reader"]
    overlap: Float[Tensor, "member pair"]
    dimensions: Float[Tensor, "member head"]
    moved: Float[Tensor, "member"]
    kept: Float[Tensor, "member"]


def buffers(model: AnyModel, asked: Queries) -> Buffers:
    """Read the buffers of models with three layers of one head."""
    last = torch.tensor([asked.inputs.shape[1] - 1])
    read = [
        probe(model, asked.inputs, labels, STREAM, positions=last, shuffles=1, untrained=model).accuracy[..., 0]
        for labels in asked.chain.unbind(dim=1)
    ]
    spaces = [[subspace(one) for one in heads] for heads in written(model)]
    middle = torch.stack([heads[1] @ heads[1].mT for heads in spaces])
    outside = torch.eye(middle.shape[-1]).to(middle) - middle
    pairs = [(0, 1), (0, 2), (1, 2)]
    return Buffers(
        decoded=torch.stack(read, dim=-1),
        matched=matching(model),
        overlap=torch.stack([torch.stack([overlap(heads[a], heads[b]) for a, b in pairs]) for heads in spaces]),
        dimensions=torch.tensor([[float(one.shape[1]) for one in heads] for heads in spaces]),
        moved=(exchanged(model, asked, middle) == asked.other_end).double().mean(dim=1),
        kept=(exchanged(model, asked, outside) == asked.chain[:, -1]).double().mean(dim=1),
    )


def matching(model: AnyModel) -> Float[Tensor, "member reader"]:
    """Return the matching scores of the second and the third head: the mean attention of a symbol to its equal.

    Keys hold their symbol in the buffer of head 0, queries theirs as embedded, and in the buffer of head 1:

        E W_QK1 W_VO0ᵀ Eᵀ   and   E W_VO1 W_QK2 W_VO0ᵀ Eᵀ

    with the embeddings E. The score is the mean of the diagonal after a softmax over keys.
    """
    embeddings = as_ensemble(model).weights["embed.W_E"].double()
    scores, moves = (circuits(model).matrix[:, :, 0].double().unbind(dim=1) for circuits in (qk, ov))
    keys = moves[0].mT @ embeddings.mT
    products = [embeddings @ scores[1] @ keys, embeddings @ moves[1] @ scores[2] @ keys]
    return torch.stack([torch.softmax(one, -1).diagonal(dim1=-2, dim2=-1).mean(dim=-1) for one in products], dim=-1)


def written(model: AnyModel) -> Float[Tensor, "member head token width"]:
    """Return what each head adds to the stream per token that it attends to, about the mean over tokens."""
    embeddings = as_ensemble(model).weights["embed.W_E"].double()
    found = embeddings.unsqueeze(1) @ ov(model).matrix[:, :, 0].double()
    return found - found.mean(dim=-2, keepdim=True)


def subspace(rows: Float[Tensor, "token width"]) -> Float[Tensor, "width dimension"]:
    """Return an orthonormal basis of the smallest principal subspace that holds `ENERGY` of the rows' squares."""
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    share = values.square().cumsum(dim=0) / values.square().sum()
    basis: Tensor = directions[: int((share < ENERGY).sum()) + 1].mT
    return basis


def overlap(left: Float[Tensor, "width one"], right: Float[Tensor, "width other"]) -> Float[Tensor, ""]:
    """Return the mean squared cosine of the principal angles between two subspaces, given by orthonormal bases.

    0 for orthogonal subspaces, 1 if one contains the other; for random ones about the larger dimension over the width.
    """
    cosines: Tensor = torch.linalg.svdvals(left.mT @ right)
    return cosines.square().mean()


def exchanged(
    model: AnyModel, asked: Queries, projector: Float[Tensor, "member width width"]
) -> Int[Tensor, "member batch"]:
    """Return the answers once a subspace of the query's stream after layer 1 holds what the other query has there."""
    own, other = (
        look(model, inputs, BETWEEN, output=False)[BETWEEN][:, :, -1:] for inputs in (asked.inputs, asked.others)
    )
    new = own + ((other - own).double() @ projector.unsqueeze(1)).to(own)
    values = Operand(values=new, axes=("member", "batch", "position", "width"))
    swap = Intervention(site=BETWEEN, where={"position": -1}, rule="replace", operand=values)
    last = torch.tensor([asked.inputs.shape[1] - 1])
    return look(model, asked.inputs, interventions=swap, positions=last)["output"][:, :, 0].argmax(dim=-1)


@dataclass(frozen=True)
class Read:
    """The accuracies of members at the end of training, and their buffers."""

    trained: Float[Tensor, "seed"]
    tested: Float[Tensor, "seed"]
    buffers: Buffers


def see(runs: Sequence[TrainedRun]) -> Read:
    """Read the buffers of the only run's members on test sequences."""
    (run,) = runs
    task = run.experiment.task
    assert isinstance(task, StepRetrieval)
    found = buffers(run.ensemble(), queries(task, SEQUENCES))
    return Read(at_end(run, "train", "accuracy"), at_end(run, "test", "accuracy"), found)


@precondition("The training sequences are answered", at="section 3", paper="accuracy 1", band=at_least(0.9))
def learned(seen: Read) -> Float[Tensor, "seed"]:
    """Accuracy on fresh training sequences at the end."""
    return seen.trained


@claim(
    "Two steps are followed through pairs of symbols that training never had",
    at="section 3",
    paper="test accuracy about 1",
    band=at_least(0.9),
)
def generalises(seen: Read) -> Float[Tensor, "seed"]:
    """Accuracy on test sequences at the end."""
    return seen.tested


@claim(
    "Each step of the chain enters the query's stream in a layer of its own",
    at="section 4",
    paper="x_1 in layer 1, x_2 in layer 2, counted from 0",
    band=at_least(0.5),
)
def one_layer_each(seen: Read) -> Float[Tensor, "seed"]:
    """Rise of the accuracy of a linear probe in a layer: of x_1 in layer 1 or of x_2 in layer 2, the smaller one."""
    rise = seen.buffers.decoded.diff(dim=1)
    return torch.minimum(rise[:, 1, 1], rise[:, 2, 2])


@claim(
    "The second head finds the pair that begins with the query's symbol: its W_QK matches the buffer of head 0",
    at="section 4",
    paper="a matching score near 1",
    band=at_least(0.5),
)
def matches_start(seen: Read) -> Float[Tensor, "seed"]:
    """Mean over symbols of the softmax over keys of E W_QK1 W_VO0ᵀ Eᵀ at the equal symbol."""
    return seen.buffers.matched[:, 0]


@claim(
    "The third head finds the pair that begins with the result of the first step: its W_QK matches two buffers",
    at="section 4",
    paper="a matching score near 1",
    band=at_least(0.5),
)
def matches_middle(seen: Read) -> Float[Tensor, "seed"]:
    """Mean over symbols of the softmax over keys of E W_VO1 W_QK2 W_VO0ᵀ Eᵀ at the equal symbol."""
    return seen.buffers.matched[:, 1]


@claim(
    "No buffer is overwritten: after the last layer the first step's result is still readable",
    at="our question: a staircase or a sliding window",
    paper="implied by separate buffers",
    band=at_least(0.9),
    own=True,
)
def not_overwritten(seen: Read) -> Float[Tensor, "seed"]:
    """Accuracy of a linear probe of x_1 in the query's stream after the last layer."""
    return seen.buffers.decoded[:, -1, 1]


@claim(
    "The third head reads the buffer of head 1: exchanging it between two queries exchanges their answers",
    at="our question: is the buffer enough?",
    paper="implied by reading one buffer",
    band=at_least(0.9),
    own=True,
)
def buffer_moves_answer(seen: Read) -> Float[Tensor, "seed"]:
    """Share of sequences whose answer is the other query's, once the subspace that head 1 writes to is exchanged after
    layer 1."""
    return seen.buffers.moved


@claim(
    "The third head reads nothing else: exchanging all but the buffer of head 1 leaves the answers",
    at="our question: is only the buffer read?",
    paper="implied by reading one buffer",
    band=at_least(0.9),
    own=True,
)
def rest_moves_nothing(seen: Read) -> Float[Tensor, "seed"]:
    """Share of right answers once everything outside the subspace that head 1 writes to is exchanged after layer 1."""
    return seen.buffers.kept


@cache
def hand_written() -> Buffers:
    """Return the buffers of a model written by hand, with one for each step: they are separate by construction."""
    task = TokenRetrieval(chains=3, steps=2, symbols=24, implicit_curriculum=False)
    return buffers(retrieval_circuit(task), queries(task, SEQUENCES))


def analyse(runs: Sequence[TrainedRun], setting: Experiment) -> Analysis:
    """Draw what can be read after each layer, and list the numbers of every member and of a hand-written model."""
    seen = see(runs)
    return Analysis(seen, [_readable(seen.buffers)], [_numbers(seen, setting.members.seeds)])


def _readable(found: Buffers) -> LineFigure:
    return curves_against(
        "What a linear probe reads from the query's stream",
        range(len(STAGES)),
        {f"x_{value}": found.decoded[:, :, value] for value in range(3)},
        x_label="after the embedding (0) and each layer (1 to 3)",
        y_label="accuracy of the probe",
        caption=f"{MEAN_AND_RANGE} Test sequences; x_0 is the query's symbol, x_1 and x_2 follow it.",
        y_range=ACCURACY,
    )


def _numbers(seen: Read, seeds: Sequence[int]) -> Table:
    both = (seen.buffers, hand_written())

    def joined(values: Sequence[Tensor]) -> list[float]:
        return torch.cat([one.double() for one in values]).tolist()

    stages = {
        f"x_{value} {when}": joined([one.decoded[:, stage, value] for one in both])
        for value in (1, 2)
        for stage, when in ((2, "after layer 1"), (3, "at the end"))
    }
    between = {
        f"heads {pair}": joined([one.overlap[:, at] for one in both])
        for at, pair in enumerate(("0, 1", "0, 2", "1, 2"))
    }
    return column_table(
        "Buffers in numbers",
        "The last row is the model written by hand, with chains as in retrieval/tokens. Accuracy of the probes of x_1 "
        "and x_2; matching scores of the second and the third head; mean squared cosine of the principal angles "
        f"between the subspaces that two heads write to, each with {ENERGY:.0%} of what the head writes, and the "
        "dimensions of these; and the shares of answers that move with the buffer of head 1, and that stay right "
        "if all else is exchanged.",
        {
            "model": [*(f"seed {one}" for one in seeds), "by hand"],
            **stages,
            "matches x_0": joined([one.matched[:, 0] for one in both]),
            "matches x_1": joined([one.matched[:, 1] for one in both]),
            **between,
            **{f"dimensions {head}": joined([one.dimensions[:, head] for one in both]) for head in range(3)},
            "moved": joined([one.moved for one in both]),
            "kept": joined([one.kept for one in both]),
        },
    )


QUICK = Experiment(
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
    Members(seeds=fresh(5)),
    "two steps",
)
PAPER = Experiment(
    StepRetrieval(),
    DecoderSpec(layers=3, heads=1, initialisation="gpt2"),
    QUICK.recipe.replace(
        optimiser=AdamW(learning_rate=1e-4, weight_decay=0.1),
        schedule=WarmupCosine(warmup=1000, horizon=100_000, end=0.1),
        batch=100,
        duration=100_000,
        evaluation=Evaluation(every=2000, size=1000),
    ),
    Members(seeds=fresh(3)),
    "two steps",
)
SMOKE = replace(
    QUICK,
    recipe=QUICK.recipe.replace(duration=20, evaluation=Evaluation(every=10, size=100)),
    members=Members(seeds=fresh(2)),
)

STUDY = Study(
    name="retrieval/buffers",
    paper="Buffer mechanism",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: three chains of two steps among 30 symbols, with the source's separation of the pairs, "
            "three layers of one head, width 128, head width 32, neither feed-forward layers nor norms, GPT-2's "
            "initial weights, 4000 steps of 64 new sequences with AdamW at 2e-3 after a warm-up, weight decay 0.1. "
            "The source has 81 symbols, width 400, head width 64, feed-forward layers and layer norms.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: the source's symbols and model, with three layers of one head, width 400, feed-forward "
            "layers and norms after the sums. Its training was not checked: 100,000 steps of 100 new sequences at 1e-4 "
            "and GPT-2's initial weights are our choice, so that outside a band nothing is contradicted.",
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
