"""Some claims of a study alone: what they do not read is neither trained nor drawn."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.spec import check_known
from anchorlab.studies.claim import Measure
from anchorlab.studies.readings import Reading
from anchorlab.studies.study import Study
from anchorlab.training import Experiment, TrainedRun


class NotTrainedError(Exception):
    """A claim reads a run that is not trained yet.

    Fields
        label: the label of the run
    """

    def __init__(self, label: Any) -> None:
        super().__init__(label)
        self.label = label


class _Runs(Mapping[Any, TrainedRun]):
    """The known runs of a study by label; `asked` collects the labels that are read."""

    def __init__(self, labels: Sequence[Any], known: Mapping[Any, TrainedRun]) -> None:
        self._labels, self._known = labels, known
        self.asked: set[Any] = set()

    def __getitem__(self, label: Any) -> TrainedRun:
        if label not in self._labels:
            raise KeyError(label)
        if label not in self._known:
            raise NotTrainedError(label)
        self.asked.add(label)
        return self._known[label]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


def with_claims(study: Study[Any], names: Iterable[str]) -> Study[Any]:
    """Return a study with the named claims and their preconditions alone, which draws nothing.

    Errors: `SpecError` for an unknown claim, and for a study that does not say what it `reads`.
    """
    if study.reads is None:
        raise SpecError("claim", f"{study.name} reads all of its runs at once", "leave it out")
    known, chosen = {one.name: one for one in study.claims}, set(names)
    for name in chosen:
        check_known("claim", name, known, "claim")

    def kept(one: Measure[Any]) -> bool:
        return one.name in chosen or (one.precondition and (not one.of or bool(chosen & set(one.of))))

    some = [one for one in study.claims if kept(one)]
    left = {one.name for one in some}
    # without any of its claims, a precondition that was asked for names itself: naming none would mean all claims
    claims = [replace(one, of=tuple(left & set(one.of)) or (one.of and (one.name,))) for one in some]
    profiles = {
        key: one
        if isinstance(one.paper, bool)
        else replace(one, paper=tuple(name for name in one.paper if name in left))
        for key, one in study.profiles.items()
    }
    return replace(study, claims=claims, profiles=profiles, draws=(), smoke=None)


def of_labels(study: Study[Any], labels: Iterable[Any]) -> Study[Any]:
    """Return a study that trains only the experiments with these labels, and reads them as before.

    A reading of any other run raises `NotTrainedError`.
    """
    chosen = set(labels)

    def trains(setting: Any) -> dict[Any, Experiment]:
        return {label: one for label, one in study.labelled(setting).items() if label in chosen}

    def reads(runs: Mapping[Any, TrainedRun], setting: Any) -> Reading:
        assert study.reads is not None
        return study.reads(_Runs(list(study.labelled(setting)), runs), setting)

    return replace(study, trains=trains, reads=reads)


def labels_read(study: Study[Any], setting: Any, untrained: Sequence[TrainedRun]) -> set[Any]:
    """Return the labels of the runs that a study's claims read when they measure untrained members."""
    assert study.reads is not None
    labels = list(study.labelled(setting))
    runs = _Runs(labels, dict(zip(labels, untrained, strict=True)))
    seen = study.reads(runs, setting)
    for measure in study.claims:
        with suppress(Exception):  # a measure may fail in any way on members that learned nothing
            measure(seen)
    return runs.asked
