"""The shape of a task, for which models are built."""

from dataclasses import dataclass
from typing import Literal

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
