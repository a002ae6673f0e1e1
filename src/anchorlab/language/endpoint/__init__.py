"""Language models behind OpenAI-compatible servers."""

from anchorlab.language.endpoint.access import Access
from anchorlab.language.endpoint.address import address_of, is_address, read_address
from anchorlab.language.endpoint.budget import Budget
from anchorlab.language.endpoint.endpoint import Endpoint
from anchorlab.language.endpoint.rate_limit import Pace
from anchorlab.language.endpoint.retry_policy import Patience
from anchorlab.language.endpoint.server import Dialect, Server
from anchorlab.language.endpoint.tally import Tally

__all__ = [
    "Access",
    "Budget",
    "Dialect",
    "Endpoint",
    "Pace",
    "Patience",
    "Server",
    "Tally",
    "address_of",
    "is_address",
    "read_address",
]
