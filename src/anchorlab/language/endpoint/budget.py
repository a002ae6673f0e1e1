"""The limit on the cost of requests, and the cost so far."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request, Said
from anchorlab.spec import Spec

_MILLION = 1e6
_TURN = 16  # tokens that a chat template adds to each turn
_TEMPLATE = 128  # tokens that a chat template adds once, such as a system prompt
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
        """Return an upper bound on a request's cost: a token for each byte, a chat template, and the longest answer."""
        template = (_TEMPLATE + _TURN * (len(request.turns) + 1)) * request.chat
        return self.cost(len(request.text.encode(errors="replace")) + template, request.tokens)

    def charge(self, request: Request, said: Said) -> float:
        """Return the cost of a reply; the worst cost if the server does not report token counts."""
        if said.read is None or said.written is None:
            return self.worst(request)
        return self.cost(said.read, said.written)


class Purse:
    """The money spent plus the worst cost of the requests in flight, never above the budget together.

    A try that the server may have charged for without answering (a dropped connection, a timeout, a malformed reply)
    counts at its worst cost. Rejected requests cost nothing.
    """

    def __init__(self, budget: Budget, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.budget, self.spent, self._sleep = budget, 0.0, sleep
        self._reserved, self._under_way = 0.0, 0

    def check(self, requests: Iterable[Request]) -> None:
        """Raise `SpecError` if the requests can together cost more than is left."""
        worst = sum(map(self.budget.worst, requests))
        if not self._fits(worst):
            limit = self.budget.max_cost
            problem = f"the questions can cost {worst:.4g}, and {limit:.4g} is the most to spend"
            raise SpecError("max_cost", problem, "ask fewer questions or allow more; nothing was asked")

    async def reserve(self, worst: float) -> None:
        """Reserve the worst cost of a request; if it does not fit, wait until those in flight settle for less.

        Errors: `SpecError` if the budget is too small and no request is in flight.
        """
        while not self._fits(worst):
            if not self._under_way:
                problem = f"the next request could exceed it: {self.spent:.4g} of {self.budget.max_cost:.4g} is spent"
                raise SpecError("max_cost", problem, "run it again with more; no question is asked twice")
            await self._sleep(_LOOK)
        self._reserved += worst
        self._under_way += 1

    def settle(self, worst: float, cost: float) -> None:
        """Replace the reserved cost of a request by its actual cost."""
        self._reserved -= worst
        self._under_way -= 1
        self.spent += cost

    def _fits(self, worst: float) -> bool:
        limit = self.budget.max_cost
        return limit is None or self.spent + self._reserved + worst <= limit * (1 + _ROUNDING) + _ROUNDING**2
