"""The output of `--dry-run`: what would be trained, and its cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anchorlab.cli.terminal.output import counted, print_json, print_table, print_text, size_text
from anchorlab.progress import shown

if TYPE_CHECKING:
    from anchorlab.engine import Forecast, ForecastCell
    from anchorlab.runs import Store
    from anchorlab.training import Experiment
    from anchorlab.training.trainer import ExecutionName

_MOST_ROWS = 30


def print_forecast(
    experiments: "Sequence[Experiment]",
    store: "Store",
    workers: int | None,
    device: str,
    json: bool,
    studies: Mapping[str, str] | None = None,
    execution: "ExecutionName" = "auto",
) -> None:
    """Forecast a training and print it for people, or as JSON; `studies` maps the addresses of cells to studies."""
    from anchorlab.engine import forecast

    with shown(not json) as report:
        found = forecast(experiments, store, workers, device, execution, report)
    if json:
        print_json(_data(found, device, studies))
        return
    several = studies is not None and len(set(studies.values())) > 1
    rows = [
        (
            *((studies or {}).get(cell.experiment.cell.address, "") for _ in range(several)),
            cell.experiment.cell.label,
            len(cell.experiment.members),
            cell.experiment.steps,
            cell.member_steps,
            _state(cell),
        )
        for cell in found.cells
        if cell.experiment.trained
    ]
    columns = (*(["study"] * several), "cell", "members", "steps", "member-steps", "in the store")
    if rows:
        print_table(columns, rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        print_text(f"and {len(rows) - _MOST_ROWS} more, which --json lists")
    for text in _summary(found, device, of_studies=studies is not None):
        print_text(text)


def _data(found: "Forecast", device: str, studies: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "cells": [
            {
                **({} if studies is None else {"study": studies.get(cell.experiment.cell.address)}),
                "label": cell.experiment.cell.label,
                "run": cell.experiment.cell.address,
                "trained": cell.experiment.trained,
                "members": len(cell.experiment.members),
                "steps": cell.experiment.steps if cell.experiment.trained else 0,
                "member_steps": cell.member_steps,
                "state": _state(cell) or "new",
                "seconds": cell.seconds,
            }
            for cell in found.cells
        ],
        "left": {
            "cells": len(found.left),
            "members": sum(len(cell.experiment.members) for cell in found.left if cell.experiment.trained),
            "member_steps": sum(cell.member_steps for cell in found.left),
        },
        "device": device,
        "workers": found.workers,
        "seconds": found.seconds,
        "at_most": found.may_stop,
        "memory_bytes": found.memory,
        "checkpoint_bytes": found.disk,
        "state_bytes": found.states,
        "measured": {"steps": found.measured_steps, "shapes": found.paces},
    }


def duration(seconds: float) -> str:
    """Return a time as text, rounded: `40 s`, `12 min`, `3 h 20 min`, `2 days 4 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(round(minutes, -1), 60)
    if hours < 36:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{counted(days, 'day')} {hours} h" if hours else counted(days, "day")


def _state(cell: "ForecastCell") -> str:
    return "finished" if cell.finished else "begun" if cell.begun else ""


def _summary(found: "Forecast", device: str, of_studies: bool) -> Iterator[str]:
    left = [cell for cell in found.left if cell.experiment.trained]
    controls = len(found.left) - len(left)
    members = sum(len(cell.experiment.members) for cell in left)
    steps = sum(cell.member_steps for cell in left)
    yield f"left to train: {counted(len(left), 'cell')}, {counted(members, 'member')}, {steps:,} member-steps"
    if controls:
        yield f"to evaluate without training, for the controls: {counted(controls, 'cell')}"
    if found.left:
        about = f"{'at most ' if found.may_stop else ''}about {duration(found.seconds)}"
        processes = "1 process" if found.workers == 1 else f"{found.workers} processes"
        yield f"time: {about} on this machine with {processes if device == 'cpu' else device}"
        rest = "; analysis and figures come on top" if of_studies else ""
        steps_text, shapes = counted(found.measured_steps, "measured step"), counted(found.paces, "shape")
        yield f"an estimate from {steps_text} of {shapes}{rest}"
        states = f", and up to {size_text(found.states)} more while training"
        yield f"memory: up to {size_text(found.memory)}; checkpoints on disk: {size_text(found.disk)}{states}"
    if any(cell.begun for cell in left):
        yield "what begun cells have kept is not subtracted"
    yield "nothing was trained or written"
