"""Attention views as plain values: the patterns that a page shows, and the models that the page can run."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.plain import parse_json
from anchorlab.spec import JSON_CONFIG

if TYPE_CHECKING:
    import numpy

    from anchorlab.tasks.batch import Example


@dataclass(frozen=True, config=JSON_CONFIG)
class Architecture:
    """A token transformer that the page can run: its sizes, and the switches of `DecoderSpec` per block.

    `length`, `inputs` and `outputs` are the numbers of positions, tokens and output coordinates. `hidden` is the
    largest number of neurons in a feed-forward layer, 0 without neurons. The page recognises merged key-query matrices,
    linear feed-forward layers, biases, a last norm and root-mean-square norms by the names of the weights.
    """

    layers: int
    heads: int
    head_width: int
    width: int
    hidden: int
    residual: tuple[bool, ...]
    output_linear: tuple[bool, ...]
    layer_norm: tuple[bool, ...]
    feed_forward: tuple[bool, ...]
    mask: tuple[bool, ...]
    projection: bool
    shift_values: int
    length: int
    inputs: int
    outputs: int
    norm_first: bool = False
    rotary: bool = False
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    tied: bool = False


@dataclass(frozen=True, config=JSON_CONFIG)
class Weight:
    """The name and shape of one weight of a member."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class LiveModel:
    """The models of a view, for a page that runs them; made by `live_model`.

    Fields
        architecture: the architecture of all members
        weights: names and shapes of a member's weights, in the order of its data
        data: `[member][step]`, the weights' values as little-endian 32-bit floats; None for an omitted checkpoint
        texts: the text of each token
        oracle: the JSON of `page_oracle`; empty if there is none
    """

    architecture: Architecture
    weights: tuple[Weight, ...]
    data: tuple[tuple[bytes | None, ...], ...]
    texts: tuple[str, ...]
    oracle: str = ""

    def __post_init__(self) -> None:
        try:
            _ = parse_json(self.oracle or "null")
        except ValueError as error:
            raise SpecError("live.oracle", f"is not JSON: {error}", "make it with page_oracle") from None
        size = 4 * sum(prod(weight.shape) for weight in self.weights)
        for member in self.data:
            for one in member:
                if one is not None and len(one) != size:
                    raise SpecError("live.data", f"has {len(one)} bytes instead of {size}", "make it with live_model")


@dataclass(frozen=True, config=JSON_CONFIG)
class ViewExample:
    """One sequence of a view: the text and role of each token, the correct answer, and the oracle's trace as text."""

    texts: tuple[str, ...]
    roles: tuple[str, ...]
    answer: str
    split: str = ""
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, config=JSON_CONFIG)
class ViewPath:
    """An attention path of a circuit: its head, its description (`query x0 → x1 of pair 1`) and its places.

    `places` lists the positions `(query, key)` for each example; the list is empty if the path has none there.
    """

    layer: int
    head: int
    text: str
    places: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class ViewScores:
    """A detector's score of every head, `[member][step][layer*heads + head]`, in 0..1."""

    detector: str
    values: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class AttentionView:
    """The attention of every head on a few sequences, at several steps of training; made by `AttentionView.of`.

    Shapes
        weights: `[member step example layer head query key]`, thousandths as little-endian 16-bit integers; a sequence
            shorter than the longest fills the first queries and keys. With `causal`, each example has only the queries
            of its own sequence, and each query only the keys up to itself
        predicted: `[member][step][example]`, or empty without predictions
        labels: `[member][step][layer*heads + head]`, the detectors' label of each head, or empty
        scores: the detectors' scores, by which the page sorts the heads, or empty
        circuits: `[member][path]`, or empty

    With `live`, the page runs the models itself. If it cannot run them, `recorded_only` may give the reason.
    """

    title: str
    members: tuple[str, ...]
    steps: tuple[int, ...]
    examples: tuple[ViewExample, ...]
    layers: int
    heads: int
    length: int
    weights: bytes
    predicted: tuple[tuple[tuple[str, ...], ...], ...] = ()
    labels: tuple[tuple[tuple[str, ...], ...], ...] = ()
    live: LiveModel | None = None
    recorded_only: str = ""
    circuits: tuple[tuple[ViewPath, ...], ...] = ()
    causal: bool = False
    scores: tuple[ViewScores, ...] = ()

    def __post_init__(self) -> None:
        lengths = [len(example.texts) if self.causal else self.length for example in self.examples]
        cells = sum(weights_of(length, self.causal) for length in lengths)
        sizes = (len(self.members), len(self.steps), len(self.examples), self.layers, self.heads, self.length)
        heads = prod((*sizes[:2], *sizes[3:5]))
        if len(self.weights) != 2 * cells * heads or 0 in sizes:
            problem = f"has {len(self.weights)} bytes for {sizes}"
            raise SpecError("view.weights", problem, "make it with AttentionView.of")
        of_heads = [[self.layers * self.heads] * len(self.steps)] * len(self.members)
        for field, given in (("labels", self.labels), *((f"scores.{one.detector}", one.values) for one in self.scores)):
            if given and [[len(one) for one in member] for member in given] != of_heads:
                problem = "do not fit the steps and heads"
                raise SpecError(f"view.{field}", problem, "give [member][step][layer*heads + head]")
        if self.live is not None:
            self._check_live(self.live)
        if self.circuits and len(self.circuits) != len(self.members):
            problem = f"has {len(self.circuits)} circuits for {len(self.members)} members"
            raise SpecError("view.circuits", problem, "give one for each, or none")
        for member, paths in enumerate(self.circuits):
            for index, path in enumerate(paths):
                self._check_path(f"view.circuits.{member}.{index}", path)

    def _check_path(self, at: str, path: ViewPath) -> None:
        if not (0 <= path.layer < self.layers and 0 <= path.head < self.heads):
            problem = f"names head {path.layer}.{path.head} of {self.layers} layers of {self.heads} heads"
            raise SpecError(at, problem, "count both from 0")
        if len(path.places) != len(self.examples):
            raise SpecError(f"{at}.places", f"has {len(path.places)} examples", f"give {len(self.examples)}")
        for example, places in zip(self.examples, path.places, strict=True):
            for query, key in places:
                if not (0 <= query < len(example.texts) and 0 <= key < len(example.texts)):
                    problem = f"has {(query, key)}, outside {len(example.texts)} tokens"
                    raise SpecError(f"{at}.places", problem, "give (query, key)")

    def _check_live(self, live: LiveModel) -> None:
        own = (self.layers, self.heads, self.length)
        if (live.architecture.layers, live.architecture.heads, live.architecture.length) != own:
            problem = f"does not have {self.layers} layers of {self.heads} heads for {self.length} positions"
            raise SpecError("view.live", problem, "make it from the models of the view")
        if [len(member) for member in live.data] != [len(self.steps)] * len(self.members):
            raise SpecError("view.live", "does not fit the members and steps", "give data or None for each")

    @classmethod
    def of(
        cls,
        title: str,
        examples: "Sequence[Example]",
        steps: Sequence[int],
        patterns: Any,
        members: Sequence[str] = ("member 0",),
        predicted: Sequence[Any] = (),
        labels: Sequence[Any] = (),
        live: LiveModel | None = None,
        circuits: "Sequence[Sequence[ViewPath]]" = (),
        causal: bool = False,
        scores: Sequence[ViewScores] = (),
    ) -> "AttentionView":
        """Build a view from attention patterns.

        Args:
            examples: the sequences, with the text and role of each token
            steps: training steps, one per checkpoint
            patterns: weights `[member step example layer head query key]` of any type that numpy accepts; with a single
                member, the axis `member` may be left out
            members: name of each member
            predicted: predicted texts `[member][step][example]`, or `[step][example]` for a single member
            causal: leave out the keys after each query, which halves the size of the view
            title, labels, live, circuits, scores: as the fields

        Errors: `SpecError` if shapes do not fit each other, if a weight is outside 0..1, and if with `causal` a query
        attends to a key after it.
        """
        import numpy as np  # late, for commands that only print claims

        array = np.asarray(patterns, dtype=np.float32)
        if array.ndim == 6:
            array = array[None]
        if predicted and len(members) == 1 and isinstance(predicted[0][0], str):
            predicted = [predicted]
        length = max((len(example.tokens) for example in examples), default=0)
        wanted = (len(members), len(steps), len(examples), *array.shape[3:5], length, length)
        if array.shape != wanted or 0 in wanted:
            wants = f"{len(members)} members, {len(steps)} steps, {len(examples)} examples of {length} tokens"
            problem = f"has shape {array.shape} for {wants}"
            raise SpecError("view.patterns", problem, "give [member step example layer head query key]")
        if not (array.min() >= -1e-4 and array.max() <= 1 + 1e-4):
            raise SpecError("view.patterns", "has weights outside 0..1", "give the pattern after the softmax")
        if causal and np.triu(array, 1).any():
            raise SpecError("view.patterns", "has keys after their queries", "leave out causal")
        if predicted and any([len(row) for row in member] != [len(examples)] * len(steps) for member in predicted):
            raise SpecError("view.predicted", "does not fit the steps and examples", "give [member][step][example]")
        return cls(
            title=title,
            members=tuple(members),
            steps=tuple(steps),
            examples=tuple(
                ViewExample(
                    texts=tuple(token.text for token in example.tokens),
                    roles=tuple(token.role for token in example.tokens),
                    answer=example.answer,
                    split=example.split,
                    trace=example.trace,
                )
                for example in examples
            ),
            layers=array.shape[3],
            heads=array.shape[4],
            length=length,
            weights=_bytes(array, [len(example.tokens) for example in examples] if causal else None),
            predicted=tuple(tuple(tuple(row) for row in member) for member in predicted),
            labels=tuple(tuple(tuple(row) for row in member) for member in labels),
            live=live,
            circuits=tuple(tuple(paths) for paths in circuits),
            causal=causal,
            scores=tuple(scores),
        )


def weights_of(length: int, causal: bool) -> int:
    """Return the number of attention weights that a view holds for one head on one sequence."""
    return length * (length + 1) // 2 if causal else length * length


def _bytes(patterns: "numpy.ndarray", lengths: Sequence[int] | None) -> bytes:
    """Return the patterns in thousandths; given `lengths`, only each sequence's queries and the keys up to each."""
    import numpy as np

    thousandths = (patterns.clip(0, 1) * 1000).round().astype("<u2")
    if lengths is None:
        return thousandths.tobytes()
    triangles = [np.tril_indices(length) for length in lengths]
    return b"".join(
        thousandths[member, step, example][..., queries, keys].tobytes()
        for member, step in np.ndindex(thousandths.shape[:2])
        for example, (queries, keys) in enumerate(triangles)
    )
