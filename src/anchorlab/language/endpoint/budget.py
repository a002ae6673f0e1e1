"""The limit on the cost of requests, and the cost so far."""

import asyncio
from collections.abc import Callable, Iterable

from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.wire import most_read
from anchorlab.spec import Spec

_MILLION = 1e6
_LOOK = 0.02  # seconds between two checks of the money spent, while requests are in flight
_ROUNDING = 1e-9


class Budget(Spec):
    """The prices of a model and the maximum to spend, in one currency.

    Fields
        max_cost: the maximum that one endpoint spends; None for no limit
        price_read, price_written: the prices of a million input tokens and a million output tokens
    """

    max_cost: float | None = Field(default=None, ge=0)
    price_read: float | None = Field(default=None, ge=0)
    price_written: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _priced(self) -> "Budget":
        for name in ("price_read", "price_written"):
            if self.max_cost is not None and getattr(self, name) is None:
                raise SpecError(name, "is not known, and max_cost cannot be kept without it", "give the price")
        return self

    def cost(self, read: int, written: int) -> float:
        """Return the cost of input and output tokens; without a price they cost nothing."""
        return (read * (self.price_read or 0.0) + written * (self.price_written or 0.0)) / _MILLION

    def worst(self, request: Request) -> float:
        """Return an upper bound on a request's cost: `most_read` tokens of input and an answer of maximum length."""
        return self.cost(most_read(request), request.tokens)


class Purse:
    """The money spent plus the worst cost of the requests in flight, never above the budget together.

    A try that the server may have charged for without answering (a dropped connection, a timeout, a malformed reply)
    counts at its worst cost. Rejected requests cost nothing.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget, self.spent = budget, 0.0
        self._reserved, self._under_way = 0.0, 0

    def check(self, requests: Iterable[Request]) -> None:
        """Raise `SpecError` if the requests can together cost more than is left."""
        worst = sum(map(self.budget.worst, requests))
        if not self._fits(worst):
            limit = self.budget.max_cost
            problem = f"the questions can cost {worst:.4g}, and {limit:.4g} is the most to spend"
            raise SpecError("max_cost", problem, "ask fewer questions or allow more; nothing was asked")

    async def reserve(self, worst: float, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Reserve the worst cost of a request; return False, with nothing reserved, once `stopped`.

        If the budget is too small for now, wait until the requests in flight have settled for less.

        Errors: `SpecError` if the budget is too small and no request is in flight.
        """
        while not self._fits(worst):
            if stopped():
                return False
            if not self._under_way:
                problem = f"the next request could exceed it: {self.spent:.4g} of {self.budget.max_cost:.4g} is spent"
                raise SpecError("max_cost", problem, "run it again with more; no question is asked twice")
            await asyncio.sleep(_LOOK)
        self._reserved += worst
        self._under_way += 1
        return True

    def settle(self, worst: float, cost: float) -> None:
        """Replace the reserved cost of a request by its actual cost."""
        self._reserved -= worst
        self._under_way -= 1
        self.spent += cost

    def _fits(self, worst: float) -> bool:
        limit = self.budget.max_cost
        return limit is None or self.spent + self._reserved + worst <= limit * (1 + _ROUNDING) + _ROUNDING**2
