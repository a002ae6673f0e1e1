"""Language models behind OpenAI-compatible servers."""

from anchorlab.language.endpoint.budget import Budget
from anchorlab.language.endpoint.endpoint import Access, Endpoint
from anchorlab.language.endpoint.pace import Pace, Patience
from anchorlab.language.endpoint.sender import Tally
from anchorlab.language.endpoint.server import Dialect, Server, address_of, is_address, read_address

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
