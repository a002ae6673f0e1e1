"""Prepare models to run in a page (`scripts/model.js`): check that it can run them, and pack their weights."""

from collections.abc import Sequence

import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.findings.view import Architecture, LiveModel, Weight
from anchorlab.models import ModelSpec
from anchorlab.models.attention import MergedAttention
from anchorlab.models.block import Block
from anchorlab.models.embedding import TokenEmbedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.transformer import Transformer
from anchorlab.tasks import Task
from anchorlab.training.ensemble import Ensemble, build
from anchorlab.viewer.oracle import page_oracle

MOST_PARAMETERS = 2**20
"""The largest number of parameters of a member in a page: 4 MiB per checkpoint, about 100 ms for 64 tokens."""


def can_run(spec: ModelSpec, task: Task) -> str | None:
    """Return None if a page can run a model on a task; else the reason in one line, as `part: problem`."""
    try:
        module = build(spec, task.shape)
        _architecture(module, task.shape)
    except SpecError as error:
        return f"{error.field}: {error.problem}"
    return None


def live_model(ensembles: Sequence[Ensemble | None], task: Task) -> LiveModel:
    """Pack the members of `ensembles` for a page that runs them.

    `ensembles` has one entry per step of the view, None for a step that the page does not include.

    Errors: `SpecError` for a model that the page cannot run, naming the part; for ensembles of different members or
    architectures; and if every entry is None.
    """
    carried = [ensemble for ensemble in ensembles if ensemble is not None]
    if not carried:
        raise SpecError("live.ensembles", "has no model", "give one for at least one step")
    template, size = carried[0].template, carried[0].size
    architecture = _architecture(template, task.shape)
    weights = tuple(Weight(name, tuple(value.shape)) for name, value in template.named_parameters())
    shapes = {weight.name: (size, *weight.shape) for weight in weights}
    for ensemble in carried:
        alike = _architecture(ensemble.template, task.shape) == architecture
        if not alike or {name: tuple(value.shape) for name, value in ensemble.weights.items()} != shapes:
            raise SpecError("live.ensembles", "differ in members or architecture", "give ensembles of one run")
    return LiveModel(
        architecture=architecture,
        weights=weights,
        data=tuple(
            tuple(None if ensemble is None else _bytes(ensemble, weights, member) for ensemble in ensembles)
            for member in range(size)
        ),
        texts=tuple(task.text_of(token) for token in range(task.shape.input_size)),
        oracle=page_oracle(task),
    )


def _bytes(ensemble: Ensemble, weights: Sequence[Weight], member: int) -> bytes:
    values = [ensemble.weights[weight.name][member].detach().float().cpu().flatten() for weight in weights]
    return torch.cat(values).numpy().astype("<f4").tobytes()


def _architecture(module: nn.Module, shape: TaskShape) -> Architecture:
    """Return a module's architecture. Errors: `SpecError` for a part that the page's script does not implement."""
    if not isinstance(module, Transformer):
        raise _refused("model", f"a {type(module).__name__} is not a transformer of this package")
    if not isinstance(module.embed, TokenEmbedding):
        raise _refused("model.embed", "reads vectors, not tokens")
    blocks = [block for block in module.blocks if isinstance(block, Block)]
    for block in blocks:
        _check_block(block)
    perceptrons = [block.mlp for block in blocks if isinstance(block.mlp, FeedForward)]
    forms = {(one.norm_first, one.attn.rotary) for one in blocks}
    if len(forms) > 1 or len({one.activation for one in perceptrons}) > 1:
        raise _refused("model.blocks", "have different forms")
    parameters = sum(parameter.numel() for parameter in module.parameters())
    if parameters > MOST_PARAMETERS:
        raise _refused("model", f"has {parameters} parameters, more than {MOST_PARAMETERS}")
    inputs, width = module.embed.W_E.shape
    length = shape.length if module.pos_embed is None else len(module.pos_embed.W_pos)
    outputs = inputs if module.tied else width if module.unembed is None else module.unembed.W_U.shape[1]
    if (length, inputs, outputs) != (shape.length, shape.input_size, shape.output_size):
        raise _refused("model", f"reads {length} of {inputs} tokens and predicts {outputs}, unlike its task")
    first = blocks[0].attn  # all blocks have the same heads
    heads, head_width, shift = 1, width, 0
    if not isinstance(first, MergedAttention):
        heads, head_width, shift = first.heads, first.head_width, first.shift_values
    return Architecture(
        layers=len(blocks),
        heads=heads,
        head_width=head_width,
        width=width,
        hidden=max((one.W_in.shape[1] for one in perceptrons), default=0),
        residual=tuple(block.residual for block in blocks),
        output_linear=tuple(block.attn.W_O is not None for block in blocks),
        layer_norm=tuple(block.ln1 is not None for block in blocks),
        feed_forward=tuple(block.mlp is not None for block in blocks),
        mask=tuple(block.causal for block in blocks),
        projection=module.unembed is not None,
        shift_values=shift,
        length=length,
        inputs=inputs,
        outputs=outputs,
        norm_first=blocks[0].norm_first,
        rotary=blocks[0].attn.rotary,
        activation=perceptrons[0].activation if perceptrons else "relu",
        tied=module.tied,
    )


def _check_block(block: Block) -> None:
    if block.parallel:
        raise _refused(f"model.{block.name}", "runs its two layers in parallel")
    if isinstance(block.attn, MergedAttention) and not block.attn.scaled:
        raise _refused(f"model.{block.name}.attn", "does not scale its scores")
    if not block.attn.softmax:
        raise _refused(f"model.{block.name}.attn", "has no softmax")


def _refused(field: str, problem: str) -> SpecError:
    return SpecError(field, problem, "show recorded attention only")
