"""Make cards: the HTML that a notebook shows for tasks, runs and other values, in the style of our pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

from markupsafe import Markup

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.findings import MARKS, SYMBOLS, Findings
from anchorlab.lens import Circuit, Landscape, Record
from anchorlab.lens.grids import Tabled
from anchorlab.lens.landscape.landscape import SHARE
from anchorlab.lens.look.record import sites_by_layer
from anchorlab.report.page import environment
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from anchorlab.spec import Spec
from anchorlab.tasks import Task
from anchorlab.tasks.batch import Batch, Example
from anchorlab.tasks.task import Proof
from anchorlab.training import Ensemble, TrainedRun
from anchorlab.training.evaluation import UNEDITED

_FEW = 4  # sequences shown of a batch
_FIRST = 8  # rows shown of a measurement
_NEWEST = 8  # runs shown of a store
_TOKENS = 40  # tokens shown of a sequence of a batch
_PLAIN = ("noise", "plain", "token")  # roles without a colour
_COLOURS = 6
_TONES = {"reproduced": "good", "supported": "good", "contradicted": "bad", "not supported": "bad", "not met": "bad"}

Cell = str | int | float | None | Markup


@dataclass(frozen=True)
class Badge:
    """A word or two in a coloured pill; `tone` is `good`, `bad` or empty."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Rows:
    """A table in a card."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Card:
    """The content of a card, from the top: kind, name and badges, note, facts, lines, a table, a last remark."""

    kind: str
    name: str
    badges: Sequence[Badge] = ()
    note: str = ""
    facts: Mapping[str, str | Markup] = field(default_factory=dict)
    lines: Sequence[str] = ()
    table: Rows | None = None
    after: str | Markup = ""


def html(value: Any) -> str:
    """Return the card of a value as HTML: one element with its own style, everything in it escaped.

    A value that cannot be read, such as a damaged run, is shown as text.
    """
    try:
        made = card(value)
    except AnchorlabError as error:
        made = Card(type(value).__name__, repr(value).partition("\n")[0], [Badge("cannot be read", "bad")], str(error))
    return environment().get_template("card.html.jinja").render(card=made)


@singledispatch
def card(value: Any) -> Card:
    """Return the card of a value."""
    raise TypeError(f"a {type(value).__name__} has no card")


@card.register
def _task(task: Task) -> Card:
    roles: list[str] = []
    rows = [
        (split, _sequence(example, roles), Markup("<strong>{}</strong>").format(example.answer))
        for split in task.splits
        for example in task.render(task.sample(split, 2, seed=0).inputs)
    ]
    shape = task.shape
    tokens = shape.inputs == "tokens"
    facts = _fields(task, without=("name",)) | {
        "reads": f"{shape.length} {'tokens of a vocabulary' if tokens else 'vectors'} of {shape.input_size}",
        "predicts": f"one of {shape.output_size} tokens" if tokens else f"a vector of {shape.output_size}",
    }
    table = Rows("Two sequences of each split, with the oracle's trace", ("split", "sequence", "answer"), rows)
    legend = [Markup('<span class="role-{}">{}</span>').format(at % _COLOURS, role) for at, role in enumerate(roles)]
    return Card("task", task.name or task.family, facts=facts, table=table, after=Markup(" · ").join(legend))


@card.register
def _proof(proof: Proof) -> Card:
    badge = Badge("✓ holds", "good") if proof.holds else Badge("✗ does not hold", "bad")
    return Card("proof of the splits", f"by {proof.method}", [badge], lines=proof.words)


@card.register
def _batch(batch: Batch) -> Card:
    arrays = ("inputs", "targets", "answers", "positions", "weights", "group")
    facts = {name: _shape(array.shape) for name in arrays if (array := getattr(batch, name)) is not None}
    facts |= {name: ", ".join(held) for name in ("latents", "rivals") if (held := getattr(batch, name))}
    table = None
    if batch.inputs.ndim == 2 and not batch.inputs.is_floating_point():
        rows = [(at, _ids(batch, at), _answer(batch, at)) for at in range(min(len(batch), _FEW))]
        table = Rows("The first sequences, with their scored positions", ("", "inputs", "answers"), rows)
    count = f"{len(batch):,} sequence{'s' if len(batch) != 1 else ''}"
    return Card("batch", count, [Badge(batch.split)], facts=facts, table=table)


@card.register
def _run(run: TrainedRun) -> Card:
    one = run.experiment
    unit = f"{one.recipe.duration} {one.recipe.unit}" if one.trained else "none"
    facts = {
        "run": Markup("<code>{}</code>").format(run.run.address),
        "model": repr(one.model),
        "members": f"{len(one.members)}, seeds {_listed(one.members.seeds)}",
        "training": unit if unit.endswith("steps") or not one.trained else f"{unit}, {one.steps:,} steps",
        **_fields(one.recipe, without=("duration", "unit")),
        "checkpoints": f"{len(run.checkpoints)}, the last at step {run.checkpoints[-1]:,}"
        if run.has_weights
        else "none",
    }
    last = last_metrics(run.metrics)
    usual = {"group": "all", "edit": UNEDITED}
    last = last.drop([name for name, value in usual.items() if set(last[name]) == {value}])
    table = Rows("At the end, over members", last.columns, last.rows())
    return Card("run", run.run.label, facts=facts, table=table)


@card.register
def _store(store: Store) -> Card:
    entries = store.select()
    newest = sorted(entries, key=lambda one: one.modified, reverse=True)[:_NEWEST]
    rows = [(Markup("<code>{}</code>").format(one.address[:8]), one.label, one.members, one.state) for one in newest]
    facts = {"folder": str(store.root), "size": f"{sum(one.size for one in entries) / 1e6:.1f} MB"}
    table = Rows("The newest", ("run", "label", "members", "state"), rows) if rows else None
    opened = Markup("Open one with <code>al.run(address)</code>, some with <code>al.find_runs(conditions)</code>")
    count = f"{len(entries):,} run{'s' if len(entries) != 1 else ''}"
    return Card("store", count, facts=facts, table=table, after=opened)


@card.register
def _record(record: Record) -> Card:
    rows = [(Markup("<code>{}</code>").format(site), layers, axes) for site, layers, axes in sites_by_layer(record)]
    columns = ("site", "layers", "axes")
    if not any(layers for _, layers, _ in rows):
        rows, columns = [(site, axes) for site, _, axes in rows], ("site", "axes")  # type: ignore[misc, assignment]
    count = f"{len(record)} site{'s' if len(record) != 1 else ''}"
    return Card("record", count, table=Rows("What was recorded", columns, rows))


@card.register
def _ensemble(ensemble: Ensemble) -> Card:
    first = next(iter(ensemble.weights.values()))
    facts = {
        "architecture": type(ensemble.template).__name__ if ensemble.spec is None else repr(ensemble.spec),
        "trainable parameters of a member": f"{ensemble.parameter_count:,}",
        "weights": f"{len(ensemble.weights)}, {str(first.dtype).removeprefix('torch.')} on {first.device}",
    }
    call = Markup("Call it on sequences: <code>ensemble(inputs)</code> is {}").format("[member batch position output].")
    return Card("ensemble", f"{ensemble.size} member{'s' if ensemble.size != 1 else ''}", facts=facts, after=call)


@card.register
def _findings(findings: Findings) -> Card:
    verdicts = [result.verdict for result in findings.claims]
    badges = [
        Badge(f"{symbol} {verdicts.count(verdict)} {verdict}", _TONES.get(verdict, ""))
        for verdict, symbol in SYMBOLS.items()
        if verdict in verdicts
    ]
    shown = tuple(name for name in MARKS if any(name in one.controls for one in findings.claims))
    rows = [
        (
            f"{SYMBOLS[one.verdict]} {one.verdict}",
            one.claim.statement,
            one.claim.paper,
            one.value,
            *(one.controls[name].text if name in one.controls else "—" for name in shown),
        )
        for one in findings.claims
    ]
    columns = ("verdict", "claim", "paper", "ours", *shown)
    titles = [Markup("<code>{}</code>").format(figure.title) for figure in findings.figures]
    drawn = Markup("Draw with <code>plot(title)</code>: {}").format(Markup(", ").join(titles)) if titles else ""
    table = Rows("Claims", columns, rows) if rows else None
    return Card(findings.study, findings.title, badges, findings.provenance.line, table=table, after=drawn)


@card.register
def _circuit(circuit: Circuit) -> Card:
    count = f"{len(circuit.paths)} path{'s' if len(circuit.paths) != 1 else ''} in {len(circuit.heads)} heads"
    losses = {
        "loss of the model": circuit.model_loss,
        "of the circuit, by its maps": circuit.loss,
        "of the circuit, attending live": circuit.live_loss,
        "of uniform attention": circuit.empty_loss,
        "of the model without the paths": circuit.rest_loss,
        "faithfulness": circuit.faithfulness,
        "completeness": circuit.completeness,
        "minimality": circuit.minimality,
    }
    facts = {name: f"{value:.4g}" for name, value in losses.items()}
    if circuit.unexplained:
        facts["not explained"] = ", ".join(f"{layer}.{head}" for layer, head in circuit.unexplained)
    rows = [
        (f"{path.layer}.{path.head}", path.rule.query, path.rule.key_text, path.attention, path.cut_loss)
        for path in circuit.paths
    ]
    columns = ("layer.head", "from", "to", "attention", "loss when cut")
    return Card("circuit", count, facts=facts, table=Rows("Attention paths", columns, rows) if rows else None)


@card.register
def _tabled(found: Tabled) -> Card:
    try:
        table = found.table
    except SpecError as error:  # too large for a table
        return Card(type(found).__name__, "without a table", note=str(error))
    rows = table.head(_FIRST).rows()
    rest = f"{table.height - len(rows):,} more rows in .table" if table.height > len(rows) else ""
    shown = Rows("The first rows" if rest else "All rows", table.columns, rows)
    return Card(type(found).__name__, f"{table.height:,} row{'s' * (table.height != 1)}", table=shown, after=rest)


@card.register
def _landscape(found: Landscape) -> Card:
    facts = {
        "units": ", ".join(found.units),
        "replaced by": {"mean": "the mean", "resample": "another sequence's", "zero": "zero"}[found.replace],
        "threshold": f"the model's loss plus {SHARE:.0%} of the effect of all units",
    }
    rows = found.summary().rows()
    columns = ("member", "loss", "without units", "threshold", "minimal sets", "smallest", "disjoint", "indispensable")
    drawn = Markup("Draw with <code>plot(what)</code>: <code>sizes</code>, <code>shapley</code>, <code>minimal</code>")
    table = Rows("Members", columns, rows)
    return Card("landscape", f"{found.loss.shape[1]:,} subsets", facts=facts, table=table, after=drawn)


def _fields(spec: Spec, without: Sequence[str]) -> dict[str, str]:
    """Return the fields that differ from their defaults, as text."""
    return {name.replace("_", " "): _text(shown.value) for name, shown in spec.__repr_args__() if name not in without}


def _text(value: Any) -> str:
    """Return a field's value as text; the entries of a mapping are `name: value`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(one)}" for name, one in value.items())
    return value if isinstance(value, str) else repr(value)


def _listed(numbers: Sequence[int], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _sequence(example: Example, roles: list[str]) -> Markup:
    """Return the tokens in the colours of their roles, and the oracle's trace; new roles are added to `roles`."""
    spans: list[tuple[str, str]] = []  # neighbours with the same role share an element
    for token in example.tokens:
        if token.role not in (*_PLAIN, *roles):
            roles.append(token.role)
        name = "noise" if token.role in _PLAIN else str(roles.index(token.role) % _COLOURS)
        if spans and spans[-1][0] == name:
            spans[-1] = (name, f"{spans[-1][1]}{example.separator}{token.text}")
        else:
            spans.append((name, token.text))
    shown = [Markup('<span class="role-{}">{}</span>').format(*span) for span in spans]
    tokens = Markup('<span class="tokens">{}</span>').format(Markup(example.separator).join(shown))
    return tokens + Markup('<span class="trace">{}</span>').format("; ".join(example.trace))


def _ids(batch: Batch, at: int) -> Markup:
    """Return the token ids of a sequence, with the scored positions in colour."""
    scored, tokens = set(batch.asked[at].tolist()), batch.inputs[at].tolist()
    shown = [
        Markup('<span class="{}">{}</span>').format("role-0" if place in scored else "role-noise", token)
        for place, token in enumerate(tokens[:_TOKENS])
    ]
    rest = f" … {len(tokens) - _TOKENS} more" if len(tokens) > _TOKENS else ""
    return Markup('<span class="tokens">{}</span>{}').format(Markup(" ").join(shown), rest)


def _answer(batch: Batch, at: int) -> str:
    """Return the answers of a sequence without padding; if they are distributions or vectors, only the shape."""
    answers = batch.answers[at][batch.asked[at] >= 0]
    return _listed(answers.tolist()) if answers.ndim == 1 else _shape(answers.shape)
