"""The study contract: settings, the experiments they ask for, an analysis of the runs, and claims on what it saw."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import cleandoc
from typing import Any, Generic, TypeVar

from anchorlab.errors import SpecError
from anchorlab.findings import Claim, Figure, Findings, Table, provenance
from anchorlab.findings.claims import SMOKE
from anchorlab.spec import unknown_name
from anchorlab.studies.claim import Measure, judge
from anchorlab.training import Experiment, TrainedRun
from anchorlab.viewer.view import AttentionView

Setting = TypeVar("Setting")

PAPERS = {"anchor": "anchor functions", "truncation": "truncated weights", "retrieval": "stacked attention heads"}
"""The short name of each family's paper, the beginning of its claims' sources."""

SMOKE_NOTE = "Smoke profile: the smallest setting that exercises the code."


@dataclass(frozen=True)
class Profile(Generic[Setting]):
    """One setting of a study: `paper` is the paper's own, `quick` shows the phenomenon on two cores in minutes.

    Args:
        setting: the sizes that differ between profiles, a frozen value
        note: how far the setting is from the paper's, in words; every report shows it
        paper: whether this is the paper's own setting, for all claims or for those of these names
    """

    setting: Setting
    note: str
    paper: bool | tuple[str, ...] = False

    def is_papers_setting(self, claim: str) -> bool:
        """Return whether the paper makes this claim, given by its measure's name, about this setting."""
        return self.paper if isinstance(self.paper, bool) else claim in self.paper


@dataclass(frozen=True)
class Analysis:
    """What a study makes of its runs.

    Args:
        seen: what the measures of the claims read
        seeds: the seeds of an analysis that draws its own data and reads no runs, in words
    """

    seen: Any
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    views: Sequence[AttentionView] = ()
    seeds: str | None = None


def no_experiments(setting: object) -> Sequence[Experiment]:
    """Return the experiments of a study that trains nothing: none."""
    return ()


@dataclass(frozen=True)
class Study(Generic[Setting]):
    """A figure or question: its settings, their experiments, and what is made of the finished runs.

    Args:
        name: `family/name`
        doc: the module's docstring: the title, a paragraph on what is studied, and the source
        claims: the measures, functions under `@claim`
        analyse: gets the runs in the order of the experiments, and the setting
        profiles: settings by the name of their profile
        smoke: the smallest setting that exercises all code, for tests; it becomes the profile `smoke`
        experiments: what a setting trains
        paper: the short name of the paper, the beginning of the claims' sources; by default its family's

    Errors: `SpecError` for a docstring without a title, and for two claims of one name.
    """

    name: str
    doc: str | None
    claims: Sequence[Measure[Any]]
    analyse: Callable[[Sequence[TrainedRun], Setting], Analysis]
    profiles: Mapping[str, Profile[Setting]]
    smoke: Setting | None = None
    experiments: Callable[[Setting], Sequence[Experiment]] = no_experiments
    paper: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+(/[\w-]+)?", self.name):
            raise SpecError(
                "study.name", f"{self.name!r} is not a name such as own/width", "use letters, digits, dashes"
            )
        if not (self.doc or "").strip():
            raise SpecError("study.doc", "has no title", "begin the module with a docstring and pass __doc__")
        if strange := [one for one in self.claims if not isinstance(one, Measure)]:
            raise SpecError("study.claims", f"{strange[0]!r:.60} is not a claim", "put @claim above the function")
        names = [measure.name for measure in self.claims]
        for name in names:
            if names.count(name) > 1:
                raise SpecError("study.claims", f"has {name!r} twice", "name each measure once")
        for key, profile in self.profiles.items():
            if isinstance(profile.paper, bool):
                continue
            for name in profile.paper if isinstance(profile.paper, tuple) else ("",):
                if name not in names:
                    raise SpecError(
                        f"study.profiles.{key}.paper",
                        f"{name or profile.paper!r} is not a claim of the study",
                        f"give True, False or a tuple of {', '.join(names)}",
                    )
        if self.smoke is not None:
            object.__setattr__(self, "profiles", {**self.profiles, SMOKE: Profile(self.smoke, SMOKE_NOTE)})

    @cached_property
    def title(self) -> str:
        """The first line of the docstring, without its full stop."""
        return cleandoc(self.doc or "").splitlines()[0].removesuffix(".")

    @cached_property
    def summary(self) -> str:
        """What the docstring says between its title and its source, as one paragraph."""
        parts = cleandoc(self.doc or "").split("\n\n")[1:]
        return " ".join(" ".join(part.split()) for part in parts if not part.startswith("Source:"))

    def claim(self, measure: Measure[Any]) -> Claim:
        """Return the claim of one of the study's measures as a plain value."""
        family = PAPERS.get(self.name.partition("/")[0], "")
        return measure.claim(self.name, family if self.paper is None else self.paper)

    def profile(self, name: str) -> Profile[Setting]:
        """Return a profile by name. Errors: `SpecError` for an unknown one."""
        if name not in self.profiles:
            raise unknown_name("profile", name, self.profiles, "profile")
        return self.profiles[name]

    def experiments_of(self, profile: str) -> Sequence[Experiment]:
        """Return the experiments of a profile. Errors: `SpecError` for an unknown one."""
        return self.experiments(self.profile(profile).setting)

    def findings(
        self, profile: str, runs: Sequence[TrainedRun], seconds: float = 0.0, device: str = "cpu", reused: int = 0
    ) -> Findings:
        """Analyse finished runs of a profile's experiments and judge the claims.

        `seconds` and `reused` go into the provenance, with the time that the analysis takes.
        """
        chosen, began = self.profile(profile), time.monotonic()
        analysis = self.analyse(runs, chosen.setting)
        if not isinstance(analysis, Analysis):
            raise SpecError("study.analyse", f"returned {type(analysis).__name__}", "return an Analysis")
        claims = tuple(
            judge(self.claim(measure), measure(analysis.seen), profile, chosen.is_papers_setting(measure.name))
            for measure in self.claims
        )
        source = provenance(profile, runs, seconds + time.monotonic() - began, device, reused)
        return Findings(
            study=self.name,
            title=self.title,
            summary=self._summary_of(chosen),
            profile=profile,
            provenance=source if analysis.seeds is None else replace(source, seeds=analysis.seeds),
            claims=claims,
            figures=tuple(analysis.figures),
            tables=tuple(analysis.tables),
            views=tuple(analysis.views),
        )

    def judge_again(self, findings: Findings) -> Findings:
        """Return findings of this study judged by its claims of today: values stay, words, bands and scopes are new.

        Errors: `SpecError` that names a claim whose value is missing, or was measured in another way.
        """
        chosen, before = self.profile(findings.profile), {one.claim.id: one for one in findings.claims}
        results = []
        for measure in self.claims:
            claim, old = self.claim(measure), before.get(self.claim(measure).id)
            if old is None or old.claim.measured_as != claim.measured_as:
                problem = "has no value" if old is None else f"was measured as {old.claim.measured_as!r}"
                raise SpecError(claim.id, f"{problem} under {findings.profile}", f"run {self.name} again")
            paper_setting = chosen.is_papers_setting(measure.name)
            values = old.value, findings.profile, old.spread, old.detail
            results.append(claim.judge(*values, paper_setting, old.untrained))
        return replace(findings, title=self.title, summary=self._summary_of(chosen), claims=tuple(results))

    def _summary_of(self, profile: Profile[Setting]) -> str:
        return f"{self.summary} {profile.note}".strip()
