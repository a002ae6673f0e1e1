"""The glossary of axes: one word per axis, used in shapes, axis patterns, records and pages."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

AXES = MappingProxyType(
    {
        "member": "one trained copy of an architecture in an ensemble",
        "candidate": "one variant of an intervention, recorded together with the others",
        "batch": "one sequence",
        "position": "one token or vector of a sequence, from 0",
        "query": "the position that attends",
        "key": "the position that is attended to",
        "scored": "one of the positions at which predictions are scored",
        "layer": "one block of a model, from 0",
        "head": "one attention head of a block, from 0",
        "width": "one coordinate of the residual stream (d_model)",
        "head_width": "one coordinate inside a head (d_head)",
        "hidden": "one neuron of a feed-forward layer (d_mlp)",
        "state": "one number, or row of numbers, that a recurrent layer carries along the sequence",
        "feature": "one coordinate of a vector-valued input",
        "output": "one coordinate of a prediction: a token of the vocabulary, or a coordinate of a vector",
    }
)

InputKind = Literal["tokens", "vectors"]


@dataclass(frozen=True)
class TaskShape:
    """The shape of a task's inputs and outputs, for which a model is built.

    Fields
        inputs: whether a position holds a token id below `input_size`, or a vector of `input_size` features
        length: the number of positions
        input_size: the number of tokens, or of features
        output_size: the width of a prediction
    """

    inputs: InputKind
    length: int
    input_size: int
    output_size: int
