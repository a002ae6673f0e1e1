"""Write the oracle of an anchor function as JSON, for a page that answers sequences itself (`scripts/oracle.js`)."""

import ast
import json
from typing import Any

from anchorlab.tasks.anchor.function import AnchorFunction
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.task import Task

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}

Node = dict[str, Any]


def page_oracle(task: Task) -> str:
    """Return the rules, operations and vocabulary of a task as JSON, or "" for a task that is not an anchor function.

    Patterns are written as slots, places and gaps, and answers as syntax trees. `label` holds the statistical labels if
    targets are distributions; otherwise it is null, and the oracle answers with the most frequent label.
    """
    if not isinstance(task, AnchorFunction):
        return ""
    vocabulary, labels = task.vocabulary, task.labels
    soft = labels if labels is not None and labels.targets == "distribution" else None
    reads_trained = any("trained(" in rule.answer.text for rule in task.rules.values())
    data = {
        "length": task.placement.length,
        "positions": task.positions.tolist(),
        "size": vocabulary.size,
        "items": vocabulary.items,
        "anchors": vocabulary.anchors,
        "distinct": task.placement.distinct,
        "operations": {anchor: _operation(operation) for anchor, operation in task.operations.items()},
        "exceptions": [{"pair": pair, "operation": _operation(operation)} for pair, operation in task.pairs.items()],
        "trained": sorted(task.reader.trained) if reads_trained else [],
        "rules": [_rule(task, name, rule) for name, rule in task.rules.items()],
        "label": {"operation": _operation(soft.change), "share": soft.share} if soft else None,
    }
    return json.dumps(data, separators=(",", ":"))


def _operation(operation: Operation) -> dict[str, Any]:
    return {"text": operation.text, "steps": operation.steps, "table": operation.table}


def _rule(task: AnchorFunction, name: str, rule: Rule) -> dict[str, Any]:
    pattern, choices, anchors = rule.pattern, task.placement.choices, task.vocabulary.anchors
    return {
        "name": name,
        "text": rule.text,
        "anchors": [
            {"name": slot, "choices": (int(slot),) if slot.isdigit() else choices.get(slot, anchors)}
            for slot in pattern.anchors
        ],
        "keys": pattern.keys,
        "places": pattern.places,
        "gaps": [{"least": gap.least, "open": gap.open} for gap in pattern.gaps],
        "answer_text": rule.answer.text,
        "answer": _node(rule, ast.parse(rule.answer.text.strip(), mode="eval").body),
    }


def _node(rule: Rule, node: ast.expr) -> Node:
    """Return an answer's syntax tree as JSON; `Expression` has already checked it."""
    match node:
        case ast.Constant(value=number):
            return {"kind": "number", "value": number}
        case ast.Name(id=slot):
            return {"kind": "slot", "slot": slot}
        case ast.UnaryOp(operand=inner):
            return {"kind": "negate", "of": _node(rule, inner)}
        case ast.BinOp(left=left, op=op, right=right):
            sides = {"left": _node(rule, left), "right": _node(rule, right)}
            return {"kind": "arithmetic", "sign": _SIGNS[type(op)], **sides}
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(rule, name, arguments)
    raise AssertionError(ast.dump(node))


def _call(rule: Rule, name: str, arguments: list[ast.expr]) -> Node:
    if name == "nearest":
        table = arguments[1]
        among = [key for key in table.keys if key] if isinstance(table, ast.Dict) else arguments[1:]
        give = table.values if isinstance(table, ast.Dict) else among
        nodes = {"among": [_node(rule, one) for one in among], "give": [_node(rule, one) for one in give]}
        return {"kind": "nearest", "to": _node(rule, arguments[0]), **nodes}
    if name == "first_after":
        return {"kind": "first_after", "slot": ast.unparse(arguments[0])}
    if name in ("min", "max"):
        return {"kind": "least" if name == "min" else "most", "of": [_node(rule, one) for one in arguments]}
    inner = ast.unparse(arguments[-1])
    if name in ("pair", "trained"):
        first, second = ast.unparse(arguments[0]), ast.unparse(arguments[1])
        texts = (f"{first}({inner})", f"{second}({first}({inner}))")
        return {
            "kind": "pair",
            "first": first,
            "second": second,
            "of": _node(rule, arguments[2]),
            "shown": [_shown(rule, text) for text in texts],
            "trained": name == "trained",
        }
    shown = _shown(rule, f"{name}({inner})")
    return {"kind": "apply", "slot": name, "of": _node(rule, arguments[0]), "shown": shown}


def _shown(rule: Rule, text: str) -> dict[str, Any]:
    """Return one step of the trace; `before` is the previously applied anchor if the pair can be an exception."""
    before = text.split("(")[1]
    return {"text": text, "before": before if "pair(" in rule.answer.text and before in rule.pattern.anchors else None}
