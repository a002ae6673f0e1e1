"""Answers: small expressions over the slots of a pattern, parsed and evaluated here, never run as Python code."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np
from jaxtyping import Bool, Int

from anchorlab.errors import SpecError

_LONGEST = 400
_ARITHMETIC = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}
_FUNCTIONS = ("nearest", "first_after", "min", "max", "pair", "trained")
_REMEDY = "write it with slots, whole numbers, + - * // %, A(x), pair(A, B, x), nearest, first_after, min or max"

Value = Int[np.ndarray, "row"]
Known = tuple[np.ndarray, np.ndarray]
"""The values of a subexpression, and whether each row has one: `[row]`, or scalars if all rows are alike."""


@dataclass(frozen=True)
class Step:
    """One applied operation: its text, the slot of its anchor, and its results `[row]`."""

    text: str
    slot: str
    value: Value


@dataclass(frozen=True)
class Reading:
    """The input of an expression: sequences, the tokens and positions of their slots, and operations as tables.

    Shapes
        sequences: `[row position]`; None if only slots are known
        tokens, positions: by slot name, each `[row]`
        anchor_index: the row of each anchor in `results`, by the anchor's token, `[token]`
        results: the result of each anchor's operation on each token, `[anchor token]`; -1 outside the operation's
            domain
        is_item: whether each token is an item, `[token]`
        exceptions: the results for pairs of anchors with their own operation, each `[token]`
        trained: the pairs of anchors in the training data
    """

    sequences: Int[np.ndarray, "row position"] | None
    tokens: Mapping[str, Value]
    positions: Mapping[str, Value]
    anchor_index: Int[np.ndarray, "token"]
    results: Int[np.ndarray, "anchor token"]
    is_item: Bool[np.ndarray, "token"]
    exceptions: Mapping[tuple[int, int], Int[np.ndarray, "token"]] = field(default_factory=dict)
    trained: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Expression:
    """An answer over a pattern's slots: `x` is the key in slot x, `A(..)` the operation of the anchor in slot A.

        x + y            sums, differences, products, // and % of keys, numbers and anchor ids
        B(A(x))          the operation of anchor A, then of anchor B
        pair(A, B, x)    the same, unless the pair of anchors has its own operation (an exception)
        trained(A, B, x) pair(A, B, x) if this pair of anchors is in the training data; else no answer
        nearest(v, x, y)            the one of x and y nearest to v; no answer for a tie
        nearest(v, {x: A, y: B})    the partner of the nearest key
        first_after(A)   the first item after the anchor
        min(x, y), max(x, y)

    Source: anchor functions, equation (7): any function of the sequence and of the anchors in it.
    """

    text: str

    def __post_init__(self) -> None:
        if len(self.text) > _LONGEST:
            raise SpecError("answer", f"has {len(self.text)} characters", f"keep it below {_LONGEST}")
        try:
            self._check(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise SpecError("answer", f"cannot read {self.text!r:.60}", _REMEDY) from None

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.text.strip(), mode="eval").body

    @cached_property
    def names(self) -> frozenset[str]:
        """The slots that the expression mentions."""
        called = {node.func for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        return frozenset(
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and not (node in called and node.id in _FUNCTIONS)
        )

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that the expression calls, such as `nearest`."""
        return frozenset(_FUNCTIONS) & {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}

    @property
    def reads_noise(self) -> bool:
        """Whether the answer depends on tokens outside the pattern."""
        return "first_after" in self.functions

    @property
    def may_be_nothing(self) -> bool:
        """Whether some rows may lack an answer: ties, division by zero, untrained pairs, or no item after an anchor."""
        return bool(self.functions - {"min", "max", "pair"}) or any(
            isinstance(node, ast.FloorDiv | ast.Mod) for node in ast.walk(self._tree)
        )

    def _check(self, node: ast.AST) -> None:
        """Raise `SpecError` for anything but slots, whole numbers, arithmetic and the known functions."""
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool) and abs(number) < 2**31:
                return None
            case ast.Name():
                return None
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._check(inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self._check(left)
                return self._check(right)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if self._fits(name, arguments):
                for argument in arguments:
                    for part in (*argument.keys, *argument.values) if isinstance(argument, ast.Dict) else (argument,):
                        self._check(part or ast.Pass())
                return None
        raise SpecError("answer", f"cannot read {ast.unparse(node)!r:.60} in {self.text!r:.80}", _REMEDY)

    @staticmethod
    def _fits(name: str, arguments: list[ast.expr]) -> bool:
        """Return whether a function, or the operation of a capital slot, takes these arguments."""
        slots = [isinstance(argument, ast.Name) and argument.id[:1].isupper() for argument in arguments]  # of anchors
        tables = [isinstance(argument, ast.Dict) for argument in arguments]
        if name == "nearest":
            return len(arguments) >= 2 and (not any(tables) or (len(arguments) == 2 and tables == [False, True]))
        if any(tables):
            return False
        if name == "first_after":
            return slots == [True]
        if name in ("pair", "trained"):
            return len(arguments) == 3 and slots[:2] == [True, True]
        if name in ("min", "max"):
            return len(arguments) >= 2
        return name[:1].isupper() and len(arguments) == 1

    def check_size(self, size: int) -> None:
        """Raise `SpecError` if a value on the way to the answer may exceed 64 bits, with tokens below `size`."""
        bounds: dict[ast.AST, int] = {}
        for node in reversed([*ast.walk(self._tree)]):  # parts come before what holds them
            parts = [bounds[part] for part in ast.iter_child_nodes(node)]
            bounds[node] = max([size, *parts])
            match node:
                case ast.Constant(value=int() as number):
                    bounds[node] = abs(number)
                case ast.BinOp(op=op):
                    one, _, other = parts
                    bounds[node] = {ast.Mult: one * other, ast.FloorDiv: one, ast.Mod: other}.get(type(op), one + other)
            if bounds[node] >= 2**62:  # half of the range, for the distances of `nearest`
                raise SpecError("answer", f"{self.text!r:.60} may exceed 64 bits", "multiply smaller numbers")

    def evaluate(self, reading: Reading) -> tuple[Value, Bool[np.ndarray, "row"], list[Step]]:
        """Return the answers (meaningless in rows without one), whether each row has one, and the operations used."""
        evaluation = _Evaluation(reading)
        value, found = evaluation.value(self._tree)
        rows = len(next(iter(reading.tokens.values())))
        return np.broadcast_to(value, (rows,)), np.broadcast_to(found, (rows,)), evaluation.steps


@dataclass(frozen=True)
class _Evaluation:
    """The evaluation of an expression on one reading; `steps` collects the operations applied."""

    reading: Reading
    steps: list[Step] = field(default_factory=list)

    def value(self, node: ast.AST) -> Known:
        match node:
            case ast.Constant(value=number):
                return np.array(number), np.array(True)
            case ast.Name(id=name):
                return self.reading.tokens[name], np.array(True)
            case ast.UnaryOp(operand=inner):
                value, found = self.value(inner)
                return np.asarray(-value), found
            case ast.BinOp(left=left, op=op, right=right):
                (one, first), (other, second) = self.value(left), self.value(right)
                with np.errstate(divide="ignore"):
                    value = _ARITHMETIC[type(op)](one, other)
                divides = other != 0 if isinstance(op, ast.FloorDiv | ast.Mod) else True
                return np.asarray(value), np.asarray(first & second & divides)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, arguments)
        raise AssertionError(ast.dump(node))

    def _call(self, name: str, arguments: list[ast.expr]) -> Known:
        if name == "nearest":
            return self._nearest(arguments)
        if name == "first_after":
            return self._first_after(arguments[0].id)  # type: ignore[attr-defined]
        if name in ("pair", "trained"):
            first, second = arguments[0].id, arguments[1].id  # type: ignore[attr-defined]
            value, found = self._pair(first, second, arguments[2])
            return value, found & self._is_trained(first, second) if name == "trained" else found
        values = [self.value(argument) for argument in arguments]
        found = np.asarray(reduce(np.logical_and, (part for _, part in values)))  # scalars if the same for all rows
        if name in ("min", "max"):
            return reduce(np.minimum if name == "min" else np.maximum, [value for value, _ in values]), found
        return self._apply(name, values[0][0], found, f"{name}({ast.unparse(arguments[0])})")

    def _nearest(self, arguments: list[ast.expr]) -> Known:
        """Return the nearest candidate, or its partner if a table is given, and whether each row is free of ties."""
        table = arguments[1]
        near = list(table.keys) if isinstance(table, ast.Dict) else arguments[1:]
        given = list(table.values) if isinstance(table, ast.Dict) else near
        to, found = self.value(arguments[0])
        candidates = [self.value(node or ast.Pass()) for node in near]
        partners = [self.value(node or ast.Pass()) for node in given]
        distance = np.stack(np.broadcast_arrays(*(np.abs(value - to) for value, _ in candidates)))
        best = distance.argmin(axis=0)
        alone = (distance == distance.min(axis=0)).sum(axis=0) == 1
        values = np.stack(np.broadcast_arrays(*(value for value, _ in partners), to)[:-1])
        all_found = reduce(np.logical_and, (found, *(part for _, part in (*candidates, *partners))))
        return np.take_along_axis(values, best[None], axis=0)[0], all_found & alone

    def _first_after(self, slot: str) -> Known:
        sequences = self.reading.sequences
        assert sequences is not None
        later = np.arange(sequences.shape[1]) > self.reading.positions[slot][:, None]
        own = (sequences >= 0) & (sequences < len(self.reading.is_item))
        candidate = later & own & self.reading.is_item[np.where(own, sequences, 0)]
        return sequences[np.arange(len(sequences)), candidate.argmax(axis=1)], candidate.any(axis=1)

    def _apply(self, slot: str, value: np.ndarray, found: np.ndarray, text: str) -> Known:
        """Apply the operation of the slot's anchor to the rows in `found`."""
        results = self.reading.results
        inside = found & (value >= 0) & (value < results.shape[1])
        result = results[self.reading.anchor_index[self.reading.tokens[slot]], np.where(inside, value, 0)]
        inside = inside & (result >= 0)
        result = np.where(inside, result, -1)
        self.steps.append(Step(text, slot, result))
        return result, inside

    def _pair(self, first: str, second: str, key: ast.expr) -> Known:
        """Apply both anchors' operations in turn, or the pair's exception."""
        tokens, inner = self.reading.tokens, ast.unparse(key)
        value, found = self.value(key)
        middle, between = self._apply(first, value, found, f"{first}({inner})")
        result, inside = self._apply(second, middle, between, f"{second}({first}({inner}))")
        for (one, other), results in self.reading.exceptions.items():
            mine = (tokens[first] == one) & (tokens[second] == other) & found
            if mine.any():
                known = (value >= 0) & (value < len(results))
                kept = np.where(known, results[np.where(mine & known, value, 0)], -1)
                result, inside = np.where(mine, kept, result), np.where(mine, kept >= 0, inside)
        self.steps[-1] = Step(self.steps[-1].text, second, result)
        return result, inside

    def _is_trained(self, first: str, second: str) -> np.ndarray:
        tokens, size = self.reading.tokens, len(self.reading.is_item)
        pairs = np.array(sorted(self.reading.trained), dtype=np.int64).reshape(-1, 2)
        return np.isin(tokens[first] * size + tokens[second], pairs[:, 0] * size + pairs[:, 1])
