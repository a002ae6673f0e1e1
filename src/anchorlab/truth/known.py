"""What is known of a model whose units are to be ranked: its minimal sets, and the loss of every subset."""

from operator import itemgetter
from pathlib import Path
from typing import Literal

import torch
from pydantic import model_validator

from anchorlab.errors import SpecError
from anchorlab.lens import Landscape, landscape
from anchorlab.lens.landscape.units import MOST
from anchorlab.plain import parse_json, read_data
from anchorlab.spec import Spec
from anchorlab.truth.circuits import Truth
from anchorlab.truth.models import Compiled, handed_out

_AGAIN = "write it again with `anchorlab export`"


class Known(Spec):
    """What is known of a model, and how it was made.

    Fields
        format: the version of this file's fields
        name, variant, rotated, seed: as given to `compiled`; the seed also decides the order of heads
        truth: the units and the minimal sets
        loss: the loss of every subset of the units, all others replaced by their mean, as in a `Landscape`
    """

    format: Literal[1] = 1
    name: str
    variant: str
    rotated: bool
    seed: int
    truth: Truth
    loss: tuple[float, ...]

    @model_validator(mode="after")
    def _fits(self) -> "Known":
        units = self.units
        if not {unit for one in self.truth.minimal for unit in one} <= {*units} or not self.truth.minimal:
            raise SpecError("truth.minimal", "holds no sets of the units", _AGAIN)
        if len(units) > MOST or len(self.loss) != 2 ** len(units):
            raise SpecError("loss", f"has {len(self.loss)} numbers for {len(units)} units", _AGAIN)
        return self

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the units, in order."""
        return tuple(unit.name for unit in self.truth.units)

    @property
    def landscape(self) -> Landscape:
        """The losses as a landscape of one member, without accuracy."""
        loss = torch.tensor([self.loss], dtype=torch.float64)
        return Landscape(self.units, loss, torch.full_like(loss, torch.nan))


def measured(made: Compiled) -> Known:
    """Return what is known of a model. The losses are measured on 256 sequences of its task's last split."""
    units = [unit.name for unit in made.truth.units]
    loss = tuple(landscape(made.ensemble, units, task=made.task, progress=False).loss[0].tolist())
    origin = {name: getattr(made, name) for name in ("name", "variant", "rotated", "seed")}
    return Known(**origin, truth=made.truth, loss=loss)


def known_models(folder: Path | str | None = None) -> dict[str, Known]:
    """Return what is known of each model, by id, in the order of the ids.

    Args:
        folder: the truth that `export_models` wrote; None measures all models of seed 0, in about half a minute

    Errors: `SpecError` for a folder without truths, and for a damaged file.
    """
    if folder is None:
        return {name: measured(made) for name, made in sorted(handed_out(), key=itemgetter(0))}
    paths = sorted(Path(folder).glob("*.json"))
    if not paths:
        raise SpecError("truth", f"{folder} holds no truth", "name the folder `truth` that `anchorlab export` wrote")
    return {path.stem: _read(path) for path in paths}


def units_to_rank(folder: Path | str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the names of each model's units, by id, for the models of `known_models`, without measuring anything.

    Errors: as `known_models`.
    """
    if folder is None:
        every = sorted(handed_out(), key=itemgetter(0))
        return {name: tuple(unit.name for unit in made.truth.units) for name, made in every}
    return {name: one.units for name, one in known_models(folder).items()}


def _read(path: Path) -> Known:
    try:
        return Known.parse(parse_json(read_data(path, follow=True)))
    except SpecError as error:
        raise SpecError(f"{path}: {error.field}", error.problem, error.remedy or _AGAIN) from None
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is damaged"
        raise SpecError(str(path), str(problem), _AGAIN) from None
