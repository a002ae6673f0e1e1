"""Write models whose units others can rank, pairs of sequences for ranking them and, in another folder, the truth."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anchorlab.errors import SpecError
from anchorlab.rng import child_seed
from anchorlab.runs.atomic_files import write_file
from anchorlab.runs.tensor_file import tensor_pieces
from anchorlab.training.saved_model import save_model
from anchorlab.truth.known import measured
from anchorlab.truth.models import Compiled, chosen, handed_out

MODELS, TRUTH, UNITS, PAIRS = "models", "truth", "units.json", "pairs.safetensors"
_MOST = 100_000


def export_models(
    folder: Path | str, pattern: str = "*", *, pairs: int = 1000, rotated: bool = True, seed: int = 0
) -> tuple[str, ...]:
    """Write compiled models and what is known of them, and return the models' ids.

        models/units.json           the units to rank, by model
        models/identity-1/          model.safetensors and model.json, for `al.load_pretrained`; pairs.safetensors
        truth/identity-1.json       a `Known`

    The pairs are `clean` and `corrupted`, `[pair position]`, each with its scored positions and answers,
    `[pair scored]`: `clean_positions`, `clean_answers` and so on. The models' files name no variant and no role of a
    unit. The folder appears complete or not at all.

    Args:
        folder: a new folder, or an empty one
        pattern: the models: `*` for all, `identity`, `identity/backup`, `*/backup`
        pairs: the number of pairs of sequences for each model; the corrupted sequence of a pair is the clean sequence
            of the previous pair (for the first pair, of the last), with its own answer
        rotated: whether to put each model in a random basis, as in `compiled`
        seed: decides the basis, the order of heads, the ids and the sequences

    Errors: `SpecError` for a pattern that matches no model, for fewer than two pairs, and for a folder that holds files
    or cannot be written.
    """
    chosen(pattern)
    if not 2 <= pairs <= _MOST:
        raise SpecError("pairs", f"cannot write {pairs} pairs", f"ask for 2 to {_MOST}")
    units: dict[str, list[str]] = {}
    with _complete(Path(folder).absolute()) as place:
        (place / TRUTH).mkdir()
        for name, made in handed_out(pattern, rotated=rotated, seed=seed):
            _write_model(made, place / MODELS / name, name, pairs, child_seed(seed, "pairs", name))
            known = measured(made)
            write_file(place / TRUTH, f"{name}.json", [_json(known.model_dump(mode="json"))])
            units[name] = list(known.units)
        write_file(place / MODELS, UNITS, [_json(units)])
    return tuple(units)


def _write_model(made: Compiled, folder: Path, name: str, pairs: int, seed: int) -> None:
    spec, task = made.ensemble.spec, made.task
    assert spec is not None
    save_model(made.model, folder, spec, task.shape, {"id": name})
    batch = task.sample(task.splits[-1], pairs, seed)
    clean = {
        "clean": batch.inputs,
        "clean_positions": batch.positions.expand(batch.answers.shape),
        "clean_answers": batch.answers,
    }
    corrupted = {key.replace("clean", "corrupted"): value.roll(1, dims=0) for key, value in clean.items()}
    write_file(folder, PAIRS, tensor_pieces(clean | corrupted))


@contextmanager
def _complete(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `folder` if all goes well. Errors: `SpecError`, as `export_models`."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise SpecError("folder", f"{folder} {'holds files' if folder.is_dir() else 'is a file'}", "name a new folder")
    existing = next(parent for parent in folder.parents if parent.exists())
    refused = SpecError("folder", f"{folder} cannot be written", "name a folder that you may write to")
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise refused
    temporary = existing / f".{folder.name}-{secrets.token_hex(8)}.tmp"
    try:
        temporary.mkdir()
        yield temporary
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(folder)
    except OSError:
        raise refused from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
