"""Findings: all results of a study under one profile, as one plain value that can be written as JSON.

Findings are frozen, comparable, validated on creation, and hold no tensors.
"""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from anchorlab.drawable import Drawable, plotted
from anchorlab.findings.claims import SYMBOLS, ClaimResult
from anchorlab.findings.figures import Figure, Table
from anchorlab.findings.limits import MANY, PARTS, Text
from anchorlab.findings.provenance import Provenance
from anchorlab.findings.seal import unseal
from anchorlab.findings.view import AttentionView
from anchorlab.spec import JSON_CONFIG, spec_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def _of_today(figure: Any) -> Any:
    """Return a figure's data without an empty `provenance`, a field of older figures that had no `seeds`."""
    if isinstance(figure, dict) and figure.get("provenance", ...) is None:
        return {name: value for name, value in figure.items() if name != "provenance"}
    return figure


@dataclass(frozen=True, config=JSON_CONFIG, repr=False)
class Findings(Drawable):
    """All results of a study under one profile.

    `summary` describes the study, and how the profile differs from the paper's setting.
    """

    study: Text
    title: Text
    summary: Text
    profile: Text
    provenance: Provenance
    claims: Annotated[tuple[ClaimResult, ...], MANY] = ()
    figures: Annotated[
        tuple[Annotated[Figure, Field(discriminator="kind"), BeforeValidator(_of_today)], ...], PARTS
    ] = ()
    tables: Annotated[tuple[Table, ...], PARTS] = ()
    views: Annotated[tuple[AttentionView, ...], PARTS] = ()

    def __repr__(self) -> str:
        held = ("claims", "figures", "tables", "views")
        counts = [f"{count} {name if count > 1 else name[:-1]}" for name in held if (count := len(getattr(self, name)))]
        return f"Findings of {self.study}, profile {self.profile}: {', '.join(counts) or 'nothing'}"

    def __str__(self) -> str:
        """Return the study's claims, one line each: verdict, statement, value and marks."""
        lines = [f"{self.study}, {self.provenance.line}"]
        for result in self.claims:
            value = result.detail if result.verdict == "not measured" else f"{result.value:.4g}"
            shown = ", ".join([f" ({value})" if value else "", *result.marks.values()])
            lines.append(f"{SYMBOLS[result.verdict]} {result.verdict}: {result.claim.statement}{shown}")
        return "\n".join(lines)

    def plot(self, title: str | None = None) -> "Drawing":
        """Draw the figure whose title is or contains `title`; None draws the only figure.

        Errors: `SpecError`, which lists the titles, if no figure or several figures match.
        """
        return plotted(self, title=title)

    def to_json(self) -> str:
        """Return the findings as JSON; non-finite numbers become strings. Equal findings give the same text."""
        return _ADAPTER.dump_json(self, indent=1).decode()

    @classmethod
    def from_json(cls, text: str | bytes, at: str = "findings") -> "Findings":
        """Parse the output of `to_json`, with or without the checksum that the store adds.

        Errors: `SpecError` that names the damaged field, with a path that begins with `at`.
        """
        try:
            return _ADAPTER.validate_json(unseal(text, at))
        except ValidationError as error:
            raise spec_error(error, at) from None


_ADAPTER: TypeAdapter[Findings] = TypeAdapter(Findings)
