"""Errors with one-line messages that name the field and the remedy."""

import errno


class AnchorlabError(Exception):
    """The base of all errors that a user can cause and fix; the message is one line."""


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


class StoreError(AnchorlabError):
    """A damaged, missing or locked file of a store; the message names the file and the remedy."""


class SiteError(AnchorlabError):
    """A site that the model does not have, or an intervention that never changed a value."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, of torch or of the operating system says that memory could not be had."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    # torch's own class, by its name, since this module is imported without torch; on a CPU torch has no class for it
    of_torch = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return of_torch or (isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error))
