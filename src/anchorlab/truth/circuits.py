"""The truth about a compiled model: its units, and which sets of them suffice."""

from itertools import product

from anchorlab.spec import Spec
from anchorlab.theory.compiled import Head, Program


class Unit(Spec):
    """A head or a feed-forward layer.

    name: `layer.head` as in `0.1`, or `layer.mlp`
    role: what the unit does, in words
    job: what the unit contributes to the answer; units with the same job can replace each other. None: nothing
    """

    name: str
    role: str
    job: str | None


class Truth(Spec):
    """All units of a model, and the sets of them that suffice when every other unit is removed.

    A unit is removed if its output is replaced by zero, or by its mean over sequences at the same position. Its output
    in another sequence would not remove it: the wrong answer in that output would tie with a backup's right answer.

    units: all units, layer by layer, heads first
    minimal: the minimal sufficient sets: each solves the task, but no longer if one of its units is removed, too
    cancelling: pairs of units whose outputs add up to zero; with only one of a pair the task is not solved
    """

    units: tuple[Unit, ...]
    minimal: tuple[tuple[str, ...], ...]
    cancelling: tuple[tuple[str, str], ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The units that every sufficient set contains, in order."""
        return tuple(one.name for one in self.units if all(one.name in some for some in self.minimal))

    @property
    def useful(self) -> tuple[str, ...]:
        """The units in at least one minimal sufficient set, in order."""
        return tuple(one.name for one in self.units if one.job is not None)


def truth_of(program: Program, heads: int) -> Truth:
    """Return the truth about a program in a decoder with this number of heads in every layer."""
    units, cancelling = [], []
    for layer in range(program.layers):
        for index in range(heads):
            name, some = f"{layer}.{index}", program.heads(layer)
            one = some[index] if index < len(some) else _IDLE
            units.append(Unit(name=name, role=one.role, job=one.job))
            cancelling += [name] if one.cancels else []
        if (feed_forward := program.feed_forward(layer)) is not None:
            units.append(Unit(name=f"{layer}.mlp", role=feed_forward.role, job=feed_forward.job))
    jobs = dict.fromkeys(one.job for one in units if one.job is not None)
    by_job = [[one.name for one in units if one.job == job] for job in jobs]
    pairs = ((cancelling[0], cancelling[1]),) if cancelling else ()
    return Truth(units=tuple(units), minimal=tuple(product(*by_job)), cancelling=pairs)


_IDLE = Head(0, "idle: writes nothing that is read", None, (), ())
