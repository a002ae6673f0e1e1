"""Settings for requests to a server that do not depend on its address or the model."""

from pathlib import Path

from anchorlab.language.endpoint.address import read_address
from anchorlab.language.endpoint.budget import Budget
from anchorlab.language.endpoint.endpoint import Endpoint
from anchorlab.language.endpoint.rate_limit import Pace
from anchorlab.language.endpoint.retry_policy import Patience
from anchorlab.language.endpoint.server import Dialect, Server


class Access(Dialect):
    """All settings for requests to a server except its address and the model's name.

    Fields, in addition to `Dialect`
        pace: limits on requests and tokens per minute
        patience: timeouts and retries
        budget: prices, and the maximum to spend on each model
    """

    pace: Pace = Pace()
    patience: Patience = Patience()
    budget: Budget = Budget()

    def open(self, address: str, journal: Path) -> Endpoint:
        """Return the model at an address such as `http://127.0.0.1:8000/v1#NAME`; nothing is sent yet.

        Args:
            address: the server's URL and the model's name
            journal: the file that keeps every request and answer

        Errors: as `read_address`, `Server` and `Endpoint`.
        """
        url, model = read_address(address)
        own = {name: getattr(self, name) for name in Dialect.model_fields}
        return Endpoint(Server(url=url, model=model, **own), journal, self.pace, self.patience, self.budget)
