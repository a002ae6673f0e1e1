"""Describe to users which members diverged."""

from collections.abc import Mapping

from anchorlab.printable import first_few
from anchorlab.runs import Store


def divergence(store: Store, labels: Mapping[str, str]) -> str | None:
    """Return one line that names the members of finished runs that diverged, and when; None if none did.

    Args:
        store: where the runs are
        labels: the runs' names for the message, by address
    """
    from anchorlab.runs.curves import all_diverged
    from anchorlab.runs.scan import with_tables

    if not labels:
        return None
    found: dict[str, list[str]] = {}
    for address, _, seed, step in with_tables(store.root, sorted(labels), all_diverged).rows():
        found.setdefault(address, []).append(f"seed {seed} by step {step}")
    if not found:
        return None
    named = [f"{labels[address]} ({address}): {first_few(members)}" for address, members in found.items()]
    return f"diverged (metrics are not finite): {first_few(named, '; ')}; lower the learning rate or clip"
