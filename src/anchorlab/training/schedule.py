"""Learning-rate schedules, as factors of each member's own learning rate."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec


class Constant(Spec):
    """The learning rate stays what it is."""

    kind: Literal["constant"] = "constant"

    def factor(self, time: int | float) -> float:
        """1 at any time."""
        return 1.0


class WarmupCosine(Spec):
    """Linear warm-up from `start` to 1 over `warmup`, then half a cosine down to `end` at `horizon`, then flat.

    Times are in the recipe's unit, and `start` and `end` are fractions of the learning rate. The horizon is the
    schedule's own, so that a run that is stopped early follows the same curve. The anchor-function paper (appendix A)
    warms up over 400 epochs from a tenth and is back at a tenth at 4000; its reference code begins a cosine of 4000
    after the warm-up, which is `horizon=4400`.
    """

    kind: Literal["warmup_cosine"] = "warmup_cosine"
    warmup: int = Field(default=0, ge=0)
    horizon: int = Field(ge=1)
    start: float = Field(default=0.0, ge=0, le=1)
    end: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _ends_after_warmup(self) -> "WarmupCosine":
        if self.horizon <= self.warmup:
            raise SpecError("horizon", f"{self.horizon} is not after the warm-up of {self.warmup}", "make it longer")
        return self

    def factor(self, time: int | float) -> float:
        """The fraction of the learning rate that holds at `time`."""
        if time < self.warmup:
            return self.start + (1 - self.start) * time / self.warmup
        progress = min(1.0, (time - self.warmup) / (self.horizon - self.warmup))
        return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * progress))


Schedule = Annotated[Constant | WarmupCosine, Field(discriminator="kind")]
