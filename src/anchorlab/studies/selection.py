"""Select studies by a name, a pattern, or a file of your own."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.spec import unknown_name
from anchorlab.studies.hypotheses import check_runs, with_hypotheses
from anchorlab.studies.python_file import named_in, studies_in
from anchorlab.studies.registry import study, study_names
from anchorlab.studies.study import Study
from anchorlab.studies.toml_file import StudyFile, own_name, read_study
from anchorlab.studies.vary import name_of
from anchorlab.training.field_paths import Value, value_at

_FILE = re.compile(r"(?P<path>.*\.(?P<kind>py|toml))(?::(?P<name>.+))?")


@dataclass(frozen=True)
class Chosen:
    """A study, and the changes that a file makes to it.

    Fields
        study: the study before any change
        changes: what a TOML file says; a list makes several studies, unless the field itself holds a list
        source: the TOML file
        code: the Python file with the study
    """

    study: Study[Any]
    changes: StudyFile = field(default_factory=StudyFile)
    source: Path | None = None
    code: Path | None = None

    def studies(
        self, profile: str, options: Mapping[str, Any], seeds: tuple[int, ...] | None = None
    ) -> list[Study[Any]]:
        """Return the study changed for a profile, or one for each combination of values if several are listed.

        `options` are further values by path; these and `seeds` override the file's.

        Errors: `SpecError` that names the field, before anything is trained.
        """
        with self.named(), self._in_file(options):
            values = {**self.changes.values, **options}
            own = self.changes.chosen_seeds if seeds is None else seeds
            listed = {path: _choices(self.study, profile, path, value) for path, value in values.items()}
            named = {path for path, several in listed.items() if len(several) > 1} | set(options)
            found = []
            for point in product(*listed.values()):
                chosen = dict(zip(listed, point, strict=True))
                parts = {path: value for path, value in chosen.items() if path in named}
                name = None if self.changes.name is None else name_of(self.changes.name, parts, seeds)
                found.append(self._varied(chosen, own, name))
            for one in found:
                if one is not self.study:
                    one.experiments_of(profile)  # mistakes show before anything is trained
                    check_runs(one, profile, self.changes.hypothesis)
            return found

    def named(self) -> Any:
        """Return a context in which errors from the study's own Python file name the file and the line."""
        return nullcontext() if self.code is None else named_in(self.code)

    def _varied(self, values: Mapping[str, Value], seeds: Sequence[int] | None, name: str | None) -> Study[Any]:
        if values or seeds is not None:
            varied = self.study.vary(values, seeds, name)
        else:
            own = self.study
            varied = own if name is None else replace(own, name=name, smoke=None, paper=own.paper_name)
        return with_hypotheses(varied, self.changes.hypothesis)

    @contextmanager
    def _in_file(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Return a context in which errors in the values of the TOML file name the file."""
        try:
            yield
        except SpecError as error:
            own = [*(path for path in self.changes.values if path not in options), "hypothesis", "study.name"]
            if self.source is None or not any(f"{error.field}.".startswith(f"{path}.") for path in own):
                raise
            raise SpecError(f"{self.source}: {error.field}", error.problem, error.remedy) from None


def chosen_studies(words: Iterable[str], changes: Path | None = None) -> list[Chosen]:
    """Return the studies selected by names, patterns and files, each once, in the order given.

    `mine.py` selects the study in that file, `mine.py:own/width` one of several, `'mine.py:*'` all of them; `mine.toml`
    the varied study that it declares. `changes` is a TOML file, without the field `study`, that varies the one selected
    study.

    Errors: `SpecError` for an unknown name, a pattern that matches no study, a file that cannot be read, a file with
    several studies but no choice, and changes to several studies or to a varied one.
    """
    found: dict[str, Chosen] = {}
    for word in words:
        for one in _of(word):
            name = one.changes.name or one.study.name
            known = found.setdefault(name, one)
            if (known.source, known.code) != (one.source, one.code):
                raise SpecError("studies", f"two of them are named {name}", "give one another name")
    chosen = list(found.values())
    return chosen if changes is None else [_changed(chosen, changes)]


def _of(word: str) -> list[Chosen]:
    match = _FILE.fullmatch(word)
    if match is None:
        return [Chosen(study(name)) for name in study_names([word])]
    path = Path(match["path"])
    return _in_python(path, match["name"]) if match["kind"] == "py" else [_in_toml(path, match["name"])]


def _in_python(path: Path, name: str | None) -> list[Chosen]:
    own = studies_in(path)
    known = [one.name for one in own]
    for each in known:
        if known.count(each) > 1:
            raise SpecError(str(path), f"holds two studies named {each}", "give each a name of its own")
    if name is None and len(own) > 1:
        some = ", ".join(f"{path}:{one}" for one in known[:5]) + (", ..." if len(known) > 5 else "")
        raise SpecError(str(path), f"holds {len(own)} studies", f"write one of {some}, or '{path}:*' for all")
    chosen = own if name is None else [one for one in own if fnmatchcase(one.name, name)]
    if not chosen:
        raise unknown_name(str(path), str(name), known, "study")
    return [Chosen(one, code=path) for one in chosen]


def _in_toml(path: Path, name: str | None) -> Chosen:
    if name is not None:
        raise SpecError(str(path), "declares one study", f"write {path}")
    read, at = read_study(path), f"{path}: study"
    if read.study is None:
        remedy = f"name the study, or run anchorlab study NAME --vary {path}; a file of a task is for train"
        raise SpecError(at, "is missing", remedy)
    match = _FILE.fullmatch(read.study)
    if match is not None and match["kind"] == "py":
        remedy = f"leave it out and run anchorlab study FILE.py --vary {path}"
        raise SpecError(at, f"{read.study!r:.60} is Python, which no TOML file runs", remedy)
    if match is not None:
        raise SpecError(at, f"{read.study!r:.60} is a file", "name the study that is varied")
    try:
        names = study_names([read.study])
    except SpecError as error:
        raise SpecError(f"{path}: {error.field}", error.problem, error.remedy) from None
    if len(names) != 1:
        raise SpecError(at, f"{read.study!r} is several studies", "name one")
    return Chosen(study(names[0]), read, path)


def _changed(chosen: Sequence[Chosen], path: Path) -> Chosen:
    """Return the one selected study with the changes of a file."""
    read = read_study(path, "vary")
    if read.study is not None:
        raise SpecError(f"{path}: study", "is given besides --vary", f"leave it out, or run anchorlab study {path}")
    if len(chosen) != 1:
        raise SpecError("vary", f"{path} changes one study; {len(chosen)} are named", "name one")
    (base,) = chosen
    if base.source is not None:
        raise SpecError("vary", f"{base.source} varies a study itself", "name the study that it varies")
    apart = f"{own_name('own', path)}-{base.study.name.replace('/', '-')}"  # a separate name for each study
    return replace(base, changes=read if read.name else read.replace(name=apart), source=path)


def _choices(study: Study[Any], profile: str, path: str, value: Any) -> list[Any]:
    """Return the values of a field, one for each study; a list is one value if the field itself holds a list."""
    experiments = study.experiments_of(profile)
    if not experiments:
        raise SpecError(path, f"{study.name} trains nothing", "leave it out")
    if isinstance(value, list) and not value:
        raise SpecError(path, "lists no value", "give one or more")
    if not isinstance(value, list) or isinstance(value_at(experiments[0], path), list):
        return [value]
    if any(value.count(each) > 1 for each in value):
        raise SpecError(path, "lists a value twice", "give each once")
    return value
