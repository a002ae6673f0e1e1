"""Readings: everything that people read of a store, in Python and on the command line, each a value or an error."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from anchorlab.cli import main
from anchorlab.errors import AnchorlabError
from anchorlab.runs import Index, Run, Store
from anchorlab.studies.running import kept_findings
from anchorlab.training import TrainedRun

_COLUMNS = "run,label,state,members,MB,studies,model.layers,recipe.duration,metrics.test.loss,metrics.train.loss"


@dataclass(frozen=True)
class Reading:
    """What one way of reading gave: a value as text, or an error in words; `clear` unless no user could mend it."""

    value: str | None = None
    error: str = ""
    clear: bool = True


Readings = dict[str, Reading]


def readings(root: Path) -> Readings:
    """Read everything of a store."""
    return {name: _attempt(read) for name, read in _every(Store(root))}


def _every(store: Store) -> Iterator[tuple[str, Callable[[], object]]]:
    for run in store.runs():
        yield f"{run.address} in Python", lambda run=run: _of_run(run)
        yield f"{run.address} drawn", lambda run=run: _curves(run)
        yield f"{run.address} shown", lambda run=run: _command(store, "runs", "show", run.address, "--json")
    yield "list of runs", lambda: _command(store, "runs", "list", "--json", "--sort", "run")
    yield (
        "list of their fields",
        lambda: _command(store, "runs", "list", "--json", "--sort", "run", "--columns", _COLUMNS),
    )
    yield "check", lambda: _command(store, "runs", "check")
    yield "runs to prune", lambda: _command(store, "runs", "prune", "--json")
    yield "claims", lambda: _command(store, "claims", "--measured", "--json")
    yield "selected runs", lambda: _selected(store)
    yield "metrics of all runs", lambda: store.metrics().rows()
    yield "findings", lambda: [one.to_json() for one in kept_findings(store)]


def _of_run(run: Run) -> object:
    run = Run(run.path)  # which has read nothing yet
    metrics, steps = run.metrics().rows(), run.checkpoints()
    tensors = [sorted(run.read_checkpoint(step).items()) for step in steps]
    weights = TrainedRun(run).ensemble().weights
    digests = [[(name, _digest(value)) for name, value in one] for one in [*tensors, sorted(weights.items())]]
    return dict(run.spec), run.label, run.environments, run.made_by, metrics, steps, digests


def _curves(run: Run) -> object:
    index = Index(run.path.parent)
    if (found := index.curves(index.entries()).get(run.address)) is None:
        raise AnchorlabError(f"{run.address} has no curves")
    return found


def _selected(store: Store) -> object:
    """Return what is selected. Errors: `AnchorlabError` with the words of a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return [one.address for one in store.select("studies=own/faults", "test.loss>0")]
        except RuntimeWarning as warning:
            raise AnchorlabError(str(warning)) from None


def _digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def _command(store: Store, *arguments: str) -> str:
    """Return what a command prints. Errors: `AnchorlabError` with what it complains of, also if it does its work."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*arguments, "--store", str(store.root)])
    if code or err.getvalue().startswith("anchorlab: "):
        raise AnchorlabError(err.getvalue().removesuffix("\n"))
    return out.getvalue()


def _attempt(read: Callable[[], object]) -> Reading:
    try:
        value = read()
    except AnchorlabError as error:
        return Reading(error=str(error), clear="\n" not in str(error))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return Reading(error=f"{type(error).__name__}: {error}", clear=False)
    return Reading(value if isinstance(value, str) else repr(value))


def differences(expected: Readings, found: Readings, path: Path) -> tuple[bool, list[str]]:
    """Return whether any reading says that a file is damaged, and in words each that is wrong without saying so."""
    said, wrong = False, []
    for name, before in expected.items():
        now = found.get(name, Reading(error="is not there any more", clear=False))
        if now == before:
            continue
        if now.value is None:
            said = True
            if not now.clear:
                wrong.append(f"{name}: an error without a remedy: {now.error}")
            elif str(path) not in now.error and path.parent.name not in now.error:
                wrong.append(f"{name}: the error does not name the file: {now.error}")
        elif _says_damaged(before.value, now.value):
            said = True
        else:
            wrong.append(f"{name}: other than before: {now.value[:200]}")
    wrong += [f"{name}: new" for name in found.keys() - expected.keys()]
    return said, wrong


def _says_damaged(before: str | None, now: str) -> bool:
    """Return whether a JSON list differs in nothing but runs that it says are damaged."""
    try:
        old, new = json.loads(before or ""), json.loads(now)
    except ValueError:
        return False
    if isinstance(new, dict) and isinstance(old, dict) and "damaged" in new:  # runs to prune, by kind
        damaged = set(new["damaged"]["runs"]) - set(old["damaged"]["runs"])
        kinds = new.keys() & old.keys() - {"damaged"}
        return bool(damaged) and all(
            set(_runs(old[kind])) - damaged == set(_runs(new[kind])) - damaged for kind in kinds
        )
    if not (isinstance(new, list) and isinstance(old, list)) or len(old) != len(new):
        return False
    differing = [b for a, b in zip(old, new, strict=True) if a != b]
    return bool(differing) and all(isinstance(one, dict) and one.get("state") == "damaged" for one in differing)


def _runs(kind: Any) -> list[str]:
    return list(kind["runs"] if isinstance(kind, dict) else kind)
