"""The study contract: settings, their experiments, an analysis of the runs, and claims about its results."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import cleandoc
from typing import Any, Generic

from anchorlab.errors import SpecError
from anchorlab.findings import Claim, ClaimResult, Figure, Findings, Table, provenance
from anchorlab.findings.claims import SMOKE
from anchorlab.findings.provenance import counted_seeds, seeds_text
from anchorlab.findings.statements import Statement, Statements, where_met
from anchorlab.findings.view import AttentionView
from anchorlab.spec import check_known
from anchorlab.studies.claim import Measure, as_control, judge
from anchorlab.studies.draws import Draw, Drawn
from anchorlab.studies.in_words import in_words
from anchorlab.studies.observation_context import ObservationContext
from anchorlab.studies.observed import Observed
from anchorlab.studies.profile import Profile, Setting
from anchorlab.studies.profile_names import of_model, part_of, parts, profile_name, reseeded, with_number_of_seeds
from anchorlab.studies.readings import Reading, check_names
from anchorlab.studies.seeds import check_fresh
from anchorlab.studies.vary import changed, name_of, words_of
from anchorlab.tasks import Task
from anchorlab.training import Experiment, Members, TrainedRun
from anchorlab.training.field_paths import Value

PAPERS = {
    "anchor": "anchor functions",
    "truncation": "truncated weights",
    "retrieval": "stacked attention heads",
    "language": "",  # of several papers: its claims' sources name them
}
"""The short name of each family's paper, the beginning of its claims' sources."""

PAPER = "paper"
"""The profile to which the notes of other profiles compare their settings."""

SMOKE_NOTE = "The smallest setting that exercises the code."


def metrics_alone(run: TrainedRun, setting: object) -> None:
    """Take no readings, for a study whose claims read metrics alone."""


@dataclass(frozen=True)
class Analysis:
    """The drawings of a study's runs or observation; `seen` is the input of the claims' measures."""

    seen: Any
    figures: Sequence[Figure]
    tables: Sequence[Table]
    views: Sequence[AttentionView]


@dataclass(frozen=True)
class Study(Generic[Setting]):
    """The study of a figure or question: its settings, their experiments, and the analysis of finished runs.

    Args:
        name: `family/name`
        doc: the module's docstring: the title, a paragraph about the study, and the source
        claims: the measures, functions under `@claim`
        profiles: settings by the name of their profile
        trains: returns the experiments of a setting by label; an experiment without a label of its own takes this one
        reads: a subclass of `Reading`, the argument of the claims and drawings: what is read of the runs by label
        draws: the figures, tables and views, each a function of what was read or observed
        smoke: the smallest setting that exercises all code, for tests; it becomes the profile `smoke`
        paper: the short name of the paper, the beginning of the claims' sources; by default its family's
        observe: in place of `trains` and `reads`: measures a pretrained model; called with setting and context
        own: whether the claims are hypotheses of your own, `supported` or `not supported`; by default if no family,
            `paper` or profile names a paper
        chosen_on: the seeds used to choose the settings by looking at results; no profile may train them
        other_task: returns, for an experiment on heads or mechanisms, another task of the same shape, on which the
            members of a second control are trained, or None; by default no such control
        keeps: takes every reading (`TrainedRun.reading`) that the claims need of one run's weights, so that a part can
            be kept without weights; `metrics_alone` if they need none; None for a study without parts

    A setting with the fields `model` and `revision` has a profile for every pretrained model, such as
    `quick@gpt2` or `quick@EleutherAI/pythia-160m@step1000`; none of these is the paper's own setting.

    Errors: `SpecError` for a docstring without a title, and for two claims with the same name.
    """

    name: str
    doc: str | None
    claims: Sequence[Measure[Any]]
    profiles: Mapping[str, Profile[Setting]]
    trains: Callable[[Setting], Mapping[Any, Experiment]] | None = None
    reads: Callable[[Mapping[Any, TrainedRun], Setting], Reading] | None = None
    draws: Sequence[Draw] = ()
    smoke: Setting | None = None
    paper: str | None = None
    observe: Callable[[Setting, ObservationContext], Observed[Any]] | None = None
    own: bool | None = None
    chosen_on: Sequence[int] = ()
    other_task: Callable[[Experiment], Task | None] | None = None
    keeps: Callable[[TrainedRun, Setting], object] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+(/[\w-]+)?", self.name):
            problem = f"{self.name!r} is not a name such as own/width"
            raise SpecError("study.name", problem, "use letters, digits, dashes")
        if not (self.doc or "").strip():
            raise SpecError("study.doc", "has no title", "begin the module with a docstring and pass __doc__")
        if (self.reads is None) == (self.observe is None):
            problem = "is missing" if self.reads is None else "is given besides observe"
            raise SpecError("study.reads", problem, "give reads, or observe alone for a pretrained model")
        if self.trains is not None and self.observe is not None:
            raise SpecError("study.trains", "is given besides observe", "give one of the two")
        if strange := [one for one in self.claims if not isinstance(one, Measure)]:
            raise SpecError("study.claims", f"{strange[0]!r:.60} is not a claim", "put @claim above the function")
        names = [measure.name for measure in self.claims]
        for name in names:
            if names.count(name) > 1:
                raise SpecError("study.claims", f"has {name!r} twice", "name each measure once")
        for measure in self.claims:
            if strange_names := set(measure.of) - set(names):
                problem = f"{min(strange_names)!r} is not a claim of the study"
                raise SpecError(f"claim.{measure.name}.of", problem, f"name some of {', '.join(names)}")
        for key, profile in self.profiles.items():
            if part_of(key)[1] is not None:
                problem = f"{key!r} would be read as a part of the profile {part_of(key)[0]!r}"
                raise SpecError("study.profiles", problem, "name it without a colon and a number")
            if isinstance(profile.paper, bool):
                continue
            for name in profile.paper if isinstance(profile.paper, tuple) else ("",):
                if name not in names:
                    problem = f"{name or profile.paper!r} is not a claim of the study"
                    remedy = f"give True, False or a tuple of {', '.join(names)}"
                    raise SpecError(f"study.profiles.{key}.paper", problem, remedy)
        if self.smoke is not None:
            object.__setattr__(self, "profiles", {**self.profiles, SMOKE: Profile(self.smoke, SMOKE_NOTE)})

    @cached_property
    def title(self) -> str:
        """The first line of the docstring, without its full stop."""
        return cleandoc(self.doc or "").splitlines()[0].removesuffix(".")

    @cached_property
    def summary(self) -> str:
        """The docstring between its title and its source, as one paragraph."""
        parts = cleandoc(self.doc or "").split("\n\n")[1:]
        return " ".join(" ".join(part.split()) for part in parts if not part.startswith("Source:"))

    @cached_property
    def statements(self) -> Statements:
        """The claims as plain values, without their measures."""
        claims = tuple(Statement(self.claim(one), one.own, one.of) for one in self.claims)
        papers = {name: profile.paper for name, profile in self.profiles.items()}
        return Statements(self.name, claims, papers, self.has_own_claims, seeds_text(self.chosen_on))

    def claim(self, measure: Measure[Any]) -> Claim:
        """Return the claim of one of the study's measures as a plain value."""
        other_work = self.paper_name not in (None, *PAPERS.values())
        return measure.claim(self.name, self.paper_name or "", other_work)

    @property
    def paper_name(self) -> str | None:
        """The short name of the paper, by default the family's; None for a study of your own."""
        return PAPERS.get(self.name.partition("/")[0]) if self.paper is None else self.paper

    @property
    def trains_models(self) -> bool:
        """Whether the study trains models, rather than measuring pretrained ones or computing exactly."""
        return self.trains is not None

    @property
    def has_own_claims(self) -> bool:
        """Whether the claims are your own hypotheses rather than a paper's."""
        if self.own is not None:
            return self.own
        return self.paper_name is None and not any(one.paper for one in self.profiles.values())

    def profile(self, name: str) -> Profile[Setting]:
        """Return a profile by name; a suffix `@gpt2` selects another model, `:1002` that seed alone.

        Errors: `SpecError` for an unknown profile, and for seeds that cannot be read.
        """
        base, model, revision = parts(name)
        base, seeds = part_of(base)
        check_known("profile", base, self.profiles, "profile")
        found = self.profiles[base]
        if seeds is not None:
            note = f"{found.note} Here {counted_seeds(seeds)}."
            found = replace(found, setting=with_number_of_seeds(found.setting, len(seeds)), note=note)
        if model is None:
            return found
        at = "" if revision is None else f" at {revision}"
        note = f"Profile {base}, of the model {model}{at} in place of its own."
        return Profile(of_model(found.setting, model, revision), note)

    def note_of(self, profile: str) -> str:
        """Return the setting of a profile in words: its experiments, what differs in the paper's profile, and its note.

        A study that trains nothing has the note alone. Errors: `SpecError` for an unknown profile.
        """
        chosen, base = self.profile(profile), part_of(parts(profile)[0])[0]
        own = list(self.labelled(chosen.setting).values()) if parts(profile)[1] is None else []
        if not own:
            return chosen.note
        said = f"{base.capitalize()} profile: {in_words(own)}."
        if not chosen.paper and base not in (PAPER, SMOKE) and PAPER in self.profiles:
            with suppress(SpecError):  # the paper's setting may not take what `vary` changes
                theirs = list(self.labelled(self.profiles[PAPER].setting).values())
                differs = in_words(theirs, beside=own) if theirs else ""
                said += f" In the paper profile: {differs}." if differs else ""
        return f"{said} {chosen.note}".strip()

    def profile_of(self, profile: str, model: str | None = None, revision: str | None = None) -> str:
        """Return the name, for `profile` and `run_study`, of a profile with another model or revision.

        Errors: `SpecError` for an unknown profile, and for a study that opens no pretrained model.
        """
        own = self.profile(profile).setting
        if model is None and revision is None:
            return profile
        changed = of_model(own, model, revision)
        return profile if changed == own else profile_name(parts(profile)[0], changed.model, changed.revision)  # type: ignore[attr-defined]

    def labelled(self, setting: Setting) -> dict[Any, Experiment]:
        """Return the experiments of a setting by label."""
        found = {} if self.trains is None else self.trains(setting)
        return {label: one if one.label else replace(one, label=str(label)) for label, one in found.items()}

    def experiments_of(self, profile: str) -> Sequence[Experiment]:
        """Return the experiments of a profile.

        Errors: `SpecError` for an unknown profile, for more seeds than it has, for a seed of `chosen_on`, and if
            a quantity of `reads` or a drawing along training reads a split or metric that none of them evaluates.
        """
        found = list(self.labelled(self.profile(profile).setting).values())
        if (seeds := part_of(parts(profile)[0])[1]) is not None:
            if not self.trains_models:
                raise SpecError("seeds", f"{self.name} trains nothing", "leave them out")
            found = reseeded(found, seeds)
        check_fresh(found, self.chosen_on)
        if found:
            check_names(self.reads, self.draws, found)
        return found

    def vary(
        self,
        values: Mapping[str, Value] | None = None,
        seeds: int | Iterable[int] | None = None,
        name: str | None = None,
    ) -> "Study[Setting]":
        """Return this study with other values in all its experiments, and with other seeds.

        >>> al.study("anchor/identity").vary({"model.heads": 3}, seeds=range(3))

        A value is named by its path in an experiment, such as `model.heads`, `recipe.optimiser.learning_rate` or
        `task.placement.length`; a value under `members` applies to every member. Quantities that the study itself
        compares, such as its sizes of training data, cannot be changed this way.

        The varied study has every profile of this one, and its title and notes list the changes. Its findings are kept
        under `name`, by default this study's with the changes, such as `anchor/identity-heads-3`. If only the seeds
        change, the claims remain the paper's; otherwise they are hypotheses of your own, supported or not. `seeds` are
        the new seeds of all members, or their number.

        Errors: `SpecError` for no change, and for a study that trains nothing; errors of
            `anchorlab.studies.vary.changed` are raised when the experiments are made.
        """
        new = dict(values or {})
        chosen = None if seeds is None else Members(seeds=seeds if isinstance(seeds, int) else tuple(seeds)).seeds
        if not new and chosen is None:
            raise SpecError("values", "change nothing", "give a value, such as {'model.heads': 3}, or seeds")
        if not self.trains_models:
            raise SpecError("values", f"{self.name} trains nothing", "give another model or profile")
        words = words_of(new, chosen)

        def trains(setting: Setting) -> dict[Any, Experiment]:
            own = self.labelled(setting)
            return dict(zip(own, changed(self.name, list(own.values()), new, chosen), strict=True))

        _, _, rest = cleandoc(self.doc or "").partition("\n")
        return replace(
            self,
            name=name or name_of(self.name, new, chosen),
            doc=f"{self.title}, with {words}.\n{rest}",
            trains=trains,
            profiles={
                key: Profile(
                    one.setting, f"{one.note} Changed from {self.name}: {words}.".strip(), False if new else one.paper
                )
                for key, one in self.profiles.items()
            },
            smoke=None,
            paper=self.paper_name,
            own=True if new else self.own,
            chosen_on=() if new else self.chosen_on,
        )

    def findings(
        self,
        profile: str,
        runs: Sequence[TrainedRun],
        seconds: float = 0.0,
        device: str = "cpu",
        reused: int = 0,
        observed: Observed[Any] | None = None,
    ) -> Findings:
        """Return the findings of a profile from finished runs of its experiments, or from what was observed.

        `seconds`, plus the time of the analysis, and `reused` go into the provenance.
        """
        chosen, began = self.profile(profile), time.monotonic()
        found = self.see(runs, chosen.setting) if self.observe is None else observed
        if not isinstance(found, Reading | Observed):
            where, what = ("reads", "a Reading") if self.observe is None else ("observe", "an Observed")
            raise SpecError(f"study.{where}", f"returned {type(found).__name__}", f"return {what}")
        analysis = self._drawn(found)
        claims = self.judge(analysis.seen, profile, found.untrained)
        source = provenance(profile, runs, seconds + time.monotonic() - began, device, reused)
        source = replace(source, model=found.model, chosen_on=seeds_text(self.chosen_on))
        return Findings(
            study=self.name,
            title=self.title,
            summary=self._summary_of(profile),
            profile=profile,
            provenance=source if found.seeds is None else replace(source, seeds=found.seeds),
            claims=claims,
            figures=tuple(analysis.figures),
            tables=tuple(analysis.tables),
            views=tuple(analysis.views),
        )

    def see(self, runs: Sequence[TrainedRun], setting: Setting) -> Reading:
        """Return the reading of finished runs, given in the order of the setting's experiments."""
        assert self.reads is not None
        return self.reads(dict(zip(self.labelled(setting), runs, strict=True)), setting)

    def analysis(self, given: Sequence[TrainedRun] | Observed[Any], setting: Setting) -> Analysis:
        """Return the input of the measures, with all figures, tables and views, from runs or an observation."""
        return self._drawn(given if isinstance(given, Observed) else self.see(given, setting))

    def _drawn(self, found: Reading | Observed[Any]) -> Analysis:
        drawn = [one for draw in self.draws for one in _listed(draw(found))]
        figures = [one for one in drawn if not isinstance(one, Table | AttentionView)]
        tables = [one for one in drawn if isinstance(one, Table)]
        return Analysis(found.seen, figures, tables, [one for one in drawn if isinstance(one, AttentionView)])

    def judge_again(self, findings: Findings) -> Findings:
        """Judge findings of this study again by its present claims: values stay; words, bands and scopes are new.

        Errors: `SpecError` that names a claim whose value is missing or was measured differently.
        """
        judged = self.statements.judge_again(findings)
        return replace(judged, title=self.title, summary=self._summary_of(findings.profile))

    def judge(self, seen: Any, profile: str, untrained: Any = None) -> tuple[ClaimResult, ...]:
        """Judge the claims on what a study saw under a profile; claims whose precondition is not met have no value.

        `seen` is the input of the measures, `untrained` the same of an untrained model; None for no such control.
        """
        results = []
        for measure in self.claims:
            claim, papers = self.claim(measure), self.profile(profile).is_papers_setting(measure.name)
            result = judge(claim, measure(seen), profile, papers, measure.own or self.has_own_claims)
            if untrained is not None and not measure.exact:
                result = replace(result, untrained=as_control(claim, measure(untrained)))
            results.append(result)
        return where_met(self.statements.claims, results)

    def _summary_of(self, profile: str) -> str:
        return f"{self.summary} {self.note_of(profile)}".strip()


def _listed(drawn: Drawn | Sequence[Drawn] | None) -> Sequence[Drawn]:
    if drawn is None:
        return ()
    return drawn if isinstance(drawn, Sequence) else (drawn,)
