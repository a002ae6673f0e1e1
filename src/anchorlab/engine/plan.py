"""Plans: how a run is divided and computed, everything that can change the last bits of its results."""

from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from anchorlab.runs import Run
from anchorlab.runs.atomic_files import damaged
from anchorlab.training.cost import MOST_TOGETHER
from anchorlab.training.joined import Places
from anchorlab.training.trainer import ExecutionName

_MOST_THREADS = 4096


@dataclass
class Plan:
    """How a run is trained, as recorded with the run: everything that can change the last bits of its results.

    Fields
        chunks: the members of each chunk
        threads: the number of threads for each chunk
        execution: how the members are executed, as for `fit`
        places: the members' places in a shared pass, if the run can be trained with other runs; else None
    """

    chunks: list[list[int]]
    threads: int
    execution: ExecutionName
    places: Places | None = None

    def is_of(self, members: int) -> bool:
        """Return whether this is a valid plan for a run of `members` members; use it for plans read from a file."""
        numbers = [member for chunk in self.chunks for member in chunk]
        if not all(type(one) is int for one in (*numbers, self.threads, *(self.places or ()))):
            return False
        if numbers != list(range(members)) or not all(self.chunks) or not 0 < self.threads <= _MOST_THREADS:
            return False
        if self.execution not in get_args(ExecutionName):
            return False
        if self.places is None:
            return True
        joined = len(self.chunks) == 1 and self.execution == "mapped" and self.threads == 1
        return joined and 0 <= self.places.first <= self.places.of - members <= MOST_TOGETHER - members

    @classmethod
    def read(cls, run: Run, recorded: Any, members: int) -> "Plan":
        """Parse the plan that a run of `members` members has recorded.

        Errors: `StoreError` if `recorded` is not a valid plan for the run.
        """
        try:
            plan = cls(**recorded)
            if plan.places is not None:
                plan.places = Places(*plan.places)  # a list in the file
            if plan.is_of(members):
                return plan
        except (TypeError, ValueError):
            pass
        raise damaged(run.plan_path, "damaged: is no plan of this run", run.address)


class Plans(NamedTuple):
    """How experiments are trained.

    Fields
        of: the plan of each experiment, by address
        together: the addresses in groups; the experiments of a group are trained as one ensemble
    """

    of: dict[str, Plan]
    together: list[list[str]]
