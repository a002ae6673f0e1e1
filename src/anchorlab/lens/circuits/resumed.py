"""Outputs of a transformer under changed attention; each pass resumes at the first block with a new change."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from jaxtyping import Float
from torch import Tensor

from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.first_sequence import sequences_at_a_time
from anchorlab.lens.look.inputs import Subject, fitting
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.replay import replay
from anchorlab.models.transformer import Transformer
from anchorlab.tasks.batch import Batch
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.member import member_module

_KEPT = 64  # streams in memory; a pass reuses one and adds at most one per block


class ResumedPasses:
    """Passes of a transformer with one member over one batch, under changes of its blocks' attention.

    A search changes one head at a time, so successive passes often agree in their lower blocks. Therefore the streams
    that enter the blocks are kept. A pass resumes at the highest block below which an earlier pass made the same
    changes. The outputs equal a full pass's.
    """

    def __init__(self, ensemble: Ensemble, batch: Batch) -> None:
        self.access, weights = Access(member_module(ensemble, 0)), ensemble.member_weights(0)
        self.inputs = fitting(batch.inputs, weights)
        self.positions = batch.positions.to(self.inputs.device)
        self.moment = Moment(0, 1, range(len(batch)), len(batch))
        self._streams: dict[tuple[Hashable, ...], Tensor] = {}

    @staticmethod
    def of(ensemble: Ensemble, batch: Batch) -> "ResumedPasses | None":
        """Return the passes; None for a model that cannot begin at a block, and for a batch too large for one pass."""
        if not isinstance(ensemble.template, Transformer):
            return None
        passes, kept = ResumedPasses(ensemble, batch), ["blocks.0.hook_resid_pre"]
        most = sequences_at_a_time(Subject(ensemble, passes.access, batch.inputs), kept=kept, copies=_KEPT)
        return passes if most >= len(batch) else None

    def __call__(
        self, names: Sequence[Hashable], changes: Callable[[int], Sequence[Intervention]]
    ) -> Float[Tensor, "batch scored output"]:
        """Return the outputs at the scored positions.

        `names` has a key for each block that identifies its changes; `changes` returns the changes of a block's
        attention, and is called only for blocks that run.
        """
        known = [block for block in range(1, len(names)) if tuple(names[:block]) in self._streams]
        begin = max(known, default=0)
        entering = (begin, self._again(tuple(names[:begin]))) if begin else None
        new = range(begin, len(names))
        changed = defaultdict[str, list[Intervention]](list)
        for one in (each for block in new for each in changes(block)):
            changed[one.site].append(one)
        tried = {site: partial(self._changed, each) for site, each in changed.items()}
        given = self.access.module, self.inputs, self.positions, tried
        with evaluating(self.access.module):
            output, streams = replay(*given, entering=entering, keep=new[1:], narrow=False)
        for block, stream in streams.items():
            self._keep(tuple(names[:block]), stream)
        return output

    def _changed(self, changes: Sequence[Intervention], value: Tensor) -> Tensor:
        for one in changes:
            value = intervene(one, value, self.access.axes(one.site, value), self.moment)
        return value

    def _again(self, prefix: tuple[Hashable, ...]) -> Tensor:
        self._keep(prefix, self._streams.pop(prefix))
        return self._streams[prefix]

    def _keep(self, prefix: tuple[Hashable, ...], stream: Tensor) -> None:
        """Store a stream as the most recent, and drop the least recently used stream if there are too many."""
        self._streams[prefix] = stream
        if len(self._streams) > _KEPT:
            del self._streams[next(iter(self._streams))]
