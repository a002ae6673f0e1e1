"""Learning-rate schedules: factors that multiply each member's learning rate."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec


class Constant(Spec):
    """A constant learning rate."""

    kind: Literal["constant"] = "constant"

    def factor(self, time: int | float) -> float:
        """Return 1."""
        return 1.0


class WarmupCosine(Spec):
    """Linear warm-up from `start` to 1 over `warmup`, then half a cosine down to `end` at `horizon`, then constant.

    `warmup` and `horizon` are in the recipe's unit; `start` and `end` are fractions of the learning rate. The horizon
    does not depend on the duration, so a shorter run follows the same curve. The anchor-function paper (appendix A)
    warms up from a tenth over 400 epochs and returns to a tenth at 4000; its reference code starts a cosine of 4000
    epochs after the warm-up, which is `horizon=4400`.
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
        """Return the fraction of the learning rate at `time`."""
        if time < self.warmup:
            return self.start + (1 - self.start) * time / self.warmup
        progress = min(1.0, (time - self.warmup) / (self.horizon - self.warmup))
        return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * progress))


Schedule = Annotated[Constant | WarmupCosine, Field(discriminator="kind")]
