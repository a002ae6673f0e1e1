"""The positions at which a prediction is scored."""

from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec


class Scoring(Spec):
    """The scored positions; negative ones count from the end.

    The default is the last position alone. Source: anchor functions, section 3.4.
    """

    positions: tuple[int, ...] = Field((-1,), min_length=1, max_length=4096)

    @model_validator(mode="after")
    def _once(self) -> "Scoring":
        if len(set(self.positions)) < len(self.positions):
            raise SpecError("positions", f"{list(self.positions)} names one twice", "name each position once")
        return self

    def within(self, length: int) -> tuple[int, ...]:
        """Return the positions counted from 0 in a sequence of this length.

        Errors: `SpecError` for a position outside the sequence, or one named twice.
        """
        for position in self.positions:
            if not -length <= position < length:
                raise SpecError("positions", f"{position} is outside the {length} positions", "use -1 for the last")
        found = tuple(position % length for position in self.positions)
        if len(set(found)) < len(found):
            raise SpecError("positions", f"{list(self.positions)} names one twice", "name each position once")
        return found
