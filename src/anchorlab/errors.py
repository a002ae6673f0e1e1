"""Errors with one-line messages that name the field and the remedy."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anchorlab.printable import first_few


class AnchorlabError(Exception):
    """The base of all errors that a user can cause and fix; the message is one line."""


class DivergedWarning(RuntimeWarning):
    """Some members of a newly trained run have metrics that are not finite."""


class SpecError(AnchorlabError, ValueError):
    """A specification that cannot be built. A `ValueError`, so that pydantic validators may raise it.

    Fields
        field: the path of the field, such as `recipe.learning_rate`
        problem: what is wrong with it
        remedy: what to do instead; empty if there is nothing to add
    """

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, str, str]]:
        return type(self), (self.field, self.problem, self.remedy)


def too_long(field: str, given: int, longest: int) -> SpecError:
    """Return the error for sequences with more positions than a model reads."""
    return SpecError(field, f"have {given} positions, and the model reads {longest}", f"give at most {longest}")


def one_sequence(field: str) -> SpecError:
    """Return the error for a single sequence in place of a batch."""
    return SpecError(field, "are one sequence without a batch axis", "give a batch of one, inputs[None]")


@contextmanager
def below(field: str) -> Iterator[None]:
    """Prefix the field of a `SpecError` raised inside `with`: below `placement`, `length` is `placement.length`."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{field}.{error.field}", error.problem, error.remedy) from None


@contextmanager
def from_extra(package: str, extra: str) -> Iterator[None]:
    """Turn the failure of an import inside `with` into a `SpecError` that says which extra installs the package."""
    try:
        yield
    except ImportError as error:
        raise SpecError(package, "is not installed", f"run pip install 'anchorlab[{extra}]'") from error


class StoreError(AnchorlabError):
    """A damaged, missing or locked file of a store; the message names the file and the remedy."""


class InUseError(StoreError):
    """Something that another process works on; try again later."""


class DamagedChunkError(StoreError):
    """A damaged or missing file, `path`, of an unfinished chunk, which can be started over alone."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}; train the run again, which starts this chunk over")

    def __reduce__(self) -> tuple[type["DamagedChunkError"], tuple[Path, str]]:
        return type(self), (self.path, self.problem)


class IncompleteError(AnchorlabError):
    """Some chunks or runs of a set of trainings failed, and all others are finished.

    Fields
        failures: each chunk or run that failed, in words, and its error
    """

    def __init__(self, failures: Sequence[tuple[str, Exception]]) -> None:
        self.failures = tuple(failures)
        reasons: dict[str, list[str]] = {}
        for name, error in failures:
            text = " ".join((str(error) or type(error).__name__).splitlines()[-1:])
            reasons.setdefault(text if isinstance(error, AnchorlabError) else f"{_kind(error)}{text}", []).append(name)
        self.lines = [f"{first_few(names, '; ', 3)} failed: {reason}" for reason, names in reasons.items()]
        super().__init__("; ".join(self.lines))

    def __reduce__(self) -> tuple[type["IncompleteError"], tuple[tuple[tuple[str, Exception], ...]]]:
        return type(self), (self.failures,)


def _kind(error: Exception) -> str:
    # an error of another process comes with its traceback as text, whose last line begins with its kind
    return "" if "Traceback" in str(error) else f"{type(error).__name__}: "


class SiteError(AnchorlabError):
    """A site that the model does not have, or an intervention that never changed a value."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error from Python, torch or the operating system means that memory ran out."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    # torch's own class, by its name, since this module is imported without torch; on a CPU torch has no class for it
    of_torch = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return of_torch or (isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error))
