"""Language models behind OpenAI-compatible servers."""

from anchorlab.language.endpoint.budget import Budget
from anchorlab.language.endpoint.endpoint import Endpoint
from anchorlab.language.endpoint.pace import Pace
from anchorlab.language.endpoint.patience import Patience
from anchorlab.language.endpoint.server import Server
from anchorlab.language.endpoint.tally import Tally

__all__ = ["Budget", "Endpoint", "Pace", "Patience", "Server", "Tally"]
