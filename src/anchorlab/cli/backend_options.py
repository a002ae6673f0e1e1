"""The options of a command that say where it trains."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.engine import On
    from anchorlab.engine.backend import Backend


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where runs are trained.

    Parameters
    ----------
    on
        `local` trains on this machine; `folder` waits for workers that share the store, `anchorlab worker STORE`; `ray`
        trains on a Ray cluster whose nodes share the store.
    address
        Ray cluster, such as `10.0.0.1:6379`; by default $RAY_ADDRESS, or the one on this machine, or a new one.
    """

    on: Literal["local", "folder", "ray"] = "local"
    address: str | None = None

    def backend(self, device: str) -> "On | Backend":
        """Return what `run` takes as `on`. Errors: `SpecError` for an option that has no use."""
        from anchorlab.engine import Ray
        from anchorlab.engine.modules import imported_modules

        if self.address is not None and self.on != "ray":
            raise SpecError("address", "only a Ray cluster has one", "add --on ray")
        return Ray(self.address, imported_modules(), device) if self.on == "ray" else self.on
