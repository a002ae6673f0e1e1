"""`anchorlab memory`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.inspect.measured import Measured
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, check_file, counted, hand_out, waiting
from anchorlab.errors import SpecError
from anchorlab.progress import shown

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from anchorlab.findings import MapFigure
    from anchorlab.tasks import Task
    from anchorlab.training import TrainedRun

_OF_TOKENS = ("embed.W_E", "unembed.W_U.T")
_LARGEST, _MOST_MAPS = 10, 4  # entries printed, maps drawn


def memory(
    run: shared.AnyRun,
    left: str,
    right: str,
    /,
    *,
    step: shared.Step = None,
    along: shared.Flag = False,
    member: int | None = None,
    figure: Path | None = None,
    store: shared.ReadStore = None,
    json: shared.Json = False,
) -> None:
    """Show how strongly a product of a run's weights associates tokens or positions.

    Parameters
    ----------
    left
        Matrix whose rows are vectors, then @ and the layers applied to them, such as `embed.W_E @ blocks.1.attn.W_V`.
    right
        Vectors of the columns, in the same form, such as `unembed.W_U.T`; `.T` transposes a matrix.
    along
        Measure at every checkpoint, and print one row for each.
    member
        Index of one member, from 0; by default the mean over all.
    figure
        Also draw the heat map to this PNG, PDF or SVG file; with `--along`, the maps of up to four checkpoints.
    """
    if along and step is not None:
        raise SpecError("step", "names one checkpoint, but `--along` takes all of them", "give one of the two")
    check_file(figure, "figure")

    of = Measured(run, store, member)
    steps = of.trained.checkpoints if along else [of.at(step)]
    forms = _forms(of.trained, left, right, steps, member, quiet=json)
    rows, columns = (
        _names(of.task, side, size) for side, size in zip((left, right), forms[steps[0]].shape, strict=True)
    )
    alike = rows == columns  # then the diagonal has a meaning
    found = [{"step": at, **_means(form, alike)} for at, form in forms.items()]
    largest = [_largest(form, rows, columns) for form in forms.values()]
    over = f"mean over {counted(len(of.members), 'member')}" if member is None else f"member {member}"

    def data() -> dict[str, Any]:
        chosen = {"run": of.address, "left": left, "right": right, "member": member, "rows": rows, "columns": columns}
        values = {} if along else {"values": forms[steps[0]].tolist()}
        checkpoints = [row | {"largest": top} for row, top in zip(found, largest, strict=True)]
        return {**chosen, **values, "checkpoints": checkpoints}

    def shown() -> Iterator[str | Rows]:
        heads = [*(name.replace("_", " ") for name in found[0]), "row", "column", "largest"]
        cells = [(*row.values(), *top[0].values()) for row, top in zip(found, largest, strict=True)]
        yield Rows(heads, cells, f"{of.label}: {left} · {right}")
        led = "; rows led: number of rows whose largest entry is on the diagonal" if alike else ""
        yield f"{len(rows)} x {len(columns)}; {over}{led}"
        tops = [[*entry.values()] for entry in largest[-1]]
        yield Rows(("row", "column", "value"), tops, f"largest entries at step {steps[-1]}")

    spread = sorted({steps[round(at * (len(steps) - 1) / (_MOST_MAPS - 1))] for at in range(_MOST_MAPS)})
    maps = {at: forms[at] for at in spread}
    of.draw(figure, lambda: _heat_maps(f"{of.label}, {over}", (left, right), (rows, columns), maps))
    hand_out(json, data, shown(), figure=figure)


def _forms(
    trained: "TrainedRun", left: str, right: str, steps: Sequence[int], member: int | None, quiet: bool
) -> "dict[int, Tensor]":
    """Return the product `[row column]` at each step: of one member, or the mean over all."""
    from anchorlab.engine import Status
    from anchorlab.lens import memory as form

    found, one = {}, len(steps) == 1
    with shown(not (quiet or one)) as show, waiting("reading the weights", quiet or not one):
        for done, step in enumerate(steps, 1):
            ensemble = trained.ensemble(step)
            found[step] = form(ensemble if member is None else ensemble.select([member]), left, right).mean(dim=0)
            show(Status(len(steps), done, "reading the weights"))
    return found


def _names(task: "Task", chain: str, size: int) -> list[str]:
    """Return the names of the rows of a chain's first matrix: the texts of tokens, or numbers for anything else."""
    tokens = chain.partition("@")[0].strip() in _OF_TOKENS
    return [task.text_of(index) if tokens else str(index) for index in range(size)]


def _means(form: "Float[Tensor, 'row column']", alike: bool) -> dict[str, float]:
    """Return the mean of a product; for `alike` rows and columns, the means on and off the diagonal, and `rows_led`."""
    import torch

    size = len(form)
    if not alike:
        return {"mean": form.mean().item()}
    off_diagonal = form[~torch.eye(size, dtype=torch.bool)]
    led = (form.argmax(dim=1) == torch.arange(size)).sum()
    return {"diagonal": form.diagonal().mean().item(), "rest": off_diagonal.mean().item(), "rows_led": int(led)}


def _largest(
    form: "Float[Tensor, 'row column']", rows: Sequence[str], columns: Sequence[str]
) -> list[dict[str, str | float]]:
    """Return the largest entries of a product with the names of their rows and columns."""
    order = form.flatten().argsort(descending=True, stable=True)[:_LARGEST].tolist()
    places = [divmod(index, len(columns)) for index in order]
    return [{"row": rows[i], "column": columns[j], "value": form[i, j].item()} for i, j in places]


def _heat_maps(
    label: str, sides: Sequence[str], names: Sequence[Sequence[str]], forms: "dict[int, Tensor]"
) -> "MapFigure":
    from anchorlab.findings import Map, MapFigure, grid

    y_label, x_label = ("\n@ ".join(part.strip() for part in side.split("@")) for side in sides)
    rows, columns = map(tuple, names)
    maps = tuple(Map(f"step {step}", grid(form), rows, columns) for step, form in forms.items())
    return MapFigure(
        title=f"{label}: what the weights associate",
        caption="The inner product of each row's vector with each column's vector.",
        maps=(maps,),
        x_label=x_label,
        y_label=y_label,
        value_label="product",
        signed=True,
    )
