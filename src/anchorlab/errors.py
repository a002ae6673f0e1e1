"""Errors that name the field and the remedy in one line."""


class AnchorlabError(Exception):
    """Base of every error that a user can cause and mend; its text is one line."""


class SpecError(AnchorlabError, ValueError):
    """A specification that cannot be built; a `ValueError`, so that a validator may raise it and its path is completed.

    `field` is the path of the offending field, such as `recipe.learning_rate`; `problem` says what is wrong with it,
    `remedy` what to write instead.
    """

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{field}: {problem}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, str, str]]:
        return type(self), (self.field, self.problem, self.remedy)


class StoreError(AnchorlabError):
    """A damaged, missing or locked file of a run store; the text names the file and the remedy."""


class SiteError(AnchorlabError):
    """A site that the model does not have, or an intervention that never changed anything."""
