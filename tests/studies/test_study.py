"""Studies: trained, analysed, drawn once and kept with the runs behind them; every smoke profile runs to its page."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import pytest
from markupsafe import escape

from anchorlab import studies
from anchorlab.engine import Status, run
from anchorlab.errors import SpecError, StoreError
from anchorlab.findings import Findings, at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.report import write_report
from anchorlab.runs import Store
from anchorlab.runs.references import FILE, read_use
from anchorlab.studies import Profile, Study, at_end, findings_directory, kept_findings, run_study
from anchorlab.studies.running import _behind
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment, FixedSample, Members, Recipe, work_per_step
from tests.small_experiments import experiment as small
from tests.studies.made_up_claims import decided, made_up

DOC = """A study.

It trains two models and reads
their losses.

Source: Fig 1.
"""


def experiments(seeds: tuple[int, ...]) -> list[Experiment]:
    recipe = Recipe(data=FixedSample(size=10), batch=5, duration=2, evaluation=Evaluation(size=5))
    model = DecoderSpec(layers=1, heads=1, width=4, head_width=4)
    return [Experiment(task("anchor/identity"), model, recipe, Members(seeds=(one,)), f"seed {one}") for one in seeds]


loss = made_up("loss", at_least(0.0), lambda seen: decided(min(seen.losses)), at="Fig 1")


class Losses(studies.Reading):
    @studies.reading
    def losses(self) -> list[float]:
        assert [run.experiment.members.seeds for run in self.runs.values()] == [(seed,) for seed in self.setting]
        return [float(studies.at_end(run, "test", "loss")) for run in self.runs.values()]


TINY = studies.Study(
    "a/b",
    DOC,
    (loss,),
    reads=Losses,
    profiles={"quick": studies.Profile((3, 1), "A note.")},
    trains=lambda seeds: dict(enumerate(experiments(seeds))),
    smoke=(0,),
    paper="",  # its claims name the paper themselves
)


def test_a_study_trains_analyses_and_keeps(tmp_path):
    store = Store(tmp_path)
    told = []
    whole = sum(one.member_steps * work_per_step(one) for one in experiments((3, 1)))
    findings = studies.run_study(TINY, "quick", store, workers=1, report=told.append)
    assert (findings.study, findings.title, findings.profile) == ("a/b", "A study", "quick")
    assert findings.summary == (
        "It trains two models and reads their losses. Quick profile: a decoder of 1 layer of 1 head, width 4 (2.02 k "
        "parameters); 10 training sequences; 2 steps in batches of 5; AdamW at 1e-3, weight decay 0.01; 1 seed each. "
        "A note."
    )
    assert (findings.provenance.profile, findings.provenance.seeds) == ("quick", "1, 3")
    assert findings.claims[0].verdict == "agrees at small scale"
    assert len(store.runs()) == 4  # two trained, and two untrained beside them
    reading = told.index(Status(1, label="reading the runs"))
    assert told[reading - 1].done == whole
    assert {status.label for status in told[reading + 1 :]} == {"controls"}
    assert studies.kept_findings(store) == [findings]
    assert studies.findings_directory(store, "a/b", "quick") == tmp_path / "studies" / "a-b" / "quick"

    again = studies.run_study(
        TINY, "quick", store, workers=1, report=lambda status: pytest.fail("nothing is left to train")
    )
    assert again.claims == findings.claims


@pytest.fixture
def clock(monkeypatch):
    """The clock of studies, which stands still until its `now` is moved."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    for name in ("anchorlab.studies.study", "anchorlab.studies.running"):
        monkeypatch.setattr(sys.modules[name], "time", clock)
    return clock


def test_what_findings_took_and_what_of_it_was_there_before(tmp_path, clock):
    """Reading runs again takes no time that counts and changes nothing; the times of training and analysis count."""

    def slowly(*given) -> Losses:
        clock.now += 60
        return Losses(*given)

    def training(status) -> None:
        clock.now += 100 * (status.label == "reading the runs")

    store = Store(tmp_path)
    slow = replace(TINY, reads=slowly)
    run(experiments((3,)), store, workers=1)
    first = studies.run_study(slow, "quick", store, workers=1, report=training).provenance
    assert first.reused == 1 and first.seconds == 160
    assert studies.run_study(TINY, "quick", store, workers=1).provenance == first
    (studies.findings_directory(store, "a/b", "quick") / "findings.json").unlink()
    assert studies.run_study(TINY, "quick", store, workers=1).provenance.reused == 2
    assert studies.run_study(TINY, "quick", Store(tmp_path / "other"), workers=1).provenance.reused == 0


def test_a_study_that_trains_nothing_takes_as_long_as_its_analysis(tmp_path, clock):
    class Computed(studies.Reading):
        losses, seeds = (1.0,), "0"

    def computing(runs, setting) -> Computed:
        clock.now += setting
        return Computed(runs)

    drawn = studies.Study("a/b", DOC, (loss,), {"quick": studies.Profile(60.0, "")}, reads=computing)
    first = studies.run_study(drawn, "quick", Store(tmp_path)).provenance
    assert (first.seconds, first.seeds, first.reused) == (60, "0", 0)
    again = replace(drawn, profiles={"quick": studies.Profile(5.0, "")})
    assert studies.run_study(again, "quick", Store(tmp_path)).provenance.seconds == 5


def test_an_unknown_profile_and_another_study_write_nothing(tmp_path):
    with pytest.raises(SpecError, match=r"^profile: unknown profile 'quik'; did you mean 'quick'"):
        studies.run_study(TINY, "quik", Store(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
    studies.run_study(replace(TINY, name="own/a-b"), "quick", Store(tmp_path))
    with pytest.raises(StoreError, match=r"findings\.json: holds findings of own/a-b; give own-a/b another name"):
        studies.run_study(replace(TINY, name="own-a/b"), "quick", Store(tmp_path))


def test_findings_of_a_changed_study_have_a_name_and_title_of_their_own(tmp_path):
    ours = studies.study("truncation/feedforward-noise")
    changed = replace(
        ours,
        profiles={"mine": studies.Profile(None, "")},
        smoke=None,
        trains=None,
        reads=studies.Reading,
        draws=(),
        claims=(),
    )
    with pytest.raises(
        SpecError, match=r"^study\.name: truncation/feedforward-noise is another study; give the changed"
    ):
        studies.run_study(changed, "mine", Store(tmp_path))
    assert list(tmp_path.iterdir()) == []
    studies.run_study(replace(changed, name="own/noise", doc="My noise."), "mine", Store(tmp_path))
    assert [(kept.study, kept.title) for kept in studies.kept_findings(Store(tmp_path))] == [("own/noise", "My noise")]
    assert (tmp_path / "studies" / "own-noise" / "mine" / "findings.json").exists()


def test_damaged_findings_are_written_anew(tmp_path):
    whole = studies.run_study(TINY, "quick", Store(tmp_path))
    path = studies.findings_directory(Store(tmp_path), "a/b", "quick") / "findings.json"
    path.write_text("{")
    assert studies.run_study(TINY, "quick", Store(tmp_path)).claims == whole.claims
    assert Findings.from_json(path.read_bytes()).claims == whole.claims


def test_kept_findings_are_judged_again_by_the_claims_of_today(tmp_path):
    """Values stay; band, words, scope, title and summary are new."""
    kept = studies.run_study(TINY, "quick", Store(tmp_path))
    stricter = replace(loss, band=(1e9, None), statement="The loss is huge")
    doc = DOC.replace("A study.", "Another title.")
    today = replace(
        TINY, claims=(stricter,), doc=doc, profiles={"quick": studies.Profile((3, 1), "New note.", paper=True)}
    )
    again = today.judge_again(kept)
    assert (again.title, again.summary.endswith("New note.")) == ("Another title", True)
    (before,), (after,) = kept.claims, again.claims
    assert (after.value, after.claim.statement, after.scope) == (before.value, "The loss is huge", "paper")
    assert (before.verdict, after.verdict) == ("agrees at small scale", "contradicted")
    assert replace(again, title=kept.title, summary=kept.summary, claims=kept.claims) == kept
    assert TINY.judge_again(kept) == kept


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(loss, measured_as="highest loss"),
         r"^a/b/loss: was measured as 'its value' under quick; run a/b"),
        (replace(loss, name="other"), r"^a/b/other: has no value under quick; run a/b again"),
    ],
)  # fmt: skip
def test_a_claim_measured_otherwise_is_not_judged_again(tmp_path, changed, message):
    kept = studies.run_study(TINY, "quick", Store(tmp_path))
    with pytest.raises(SpecError, match=message):
        replace(TINY, claims=(changed,)).judge_again(kept)


@pytest.mark.untyped
def test_what_is_no_reading_no_claim_or_no_name_of_claims_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"^study\.reads: returned list; return a Reading$"):
        studies.run_study(replace(TINY, reads=lambda runs, setting: [1.0]), "quick", Store(tmp_path))
    observing = replace(TINY, trains=None, reads=None, observe=lambda setting, context: None)
    with pytest.raises(SpecError, match=r"^study\.observe: returned NoneType; return an Observed$"):
        studies.run_study(observing, "quick", Store(tmp_path))
    with pytest.raises(SpecError, match=r"^study\.trains: is given besides observe; give one of the two$"):
        replace(observing, trains=TINY.trains)
    with pytest.raises(SpecError, match=r"^study\.claims: <function experiments.* is not a claim; put @claim above"):
        replace(TINY, claims=(experiments,))
    with pytest.raises(SpecError, match=r"^study\.profiles\.quick\.paper: 'loss' is not"):
        replace(TINY, profiles={"quick": studies.Profile((3, 1), "", paper="loss")})


def test_damaged_findings_are_named_and_an_empty_store_has_none(tmp_path):
    assert studies.kept_findings(Store(tmp_path / "nowhere")) == []
    folder = studies.findings_directory(Store(tmp_path), "a/b", "quick")
    folder.mkdir(parents=True)
    (folder / "findings.json").write_bytes(b"\xff{")
    with pytest.raises(StoreError, match=r"findings\.json: damaged .*run its study again"):
        studies.kept_findings(Store(tmp_path))


def test_the_smoke_setting_becomes_a_profile():
    assert [one.label for one in TINY.experiments_of("smoke")] == ["seed 0"]
    assert [one.label for one in TINY.experiments_of("quick")] == ["seed 3", "seed 1"]
    assert not TINY.profile("smoke").is_papers_setting("loss")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc": None}, r"^study\.doc: has no title"),
        ({"doc": "  \n"}, r"^study\.doc: has no title"),
        ({"claims": (loss, loss)}, r"^study\.claims: has 'loss' twice"),
        ({"name": "../x"}, r"^study\.name: '\.\./x' is not a name"),
        ({"profiles": {"quick": studies.Profile((3, 1), "", paper=("los",))}},
         r"^study\.profiles\.quick\.paper: 'los' is not a claim"),
    ],
)  # fmt: skip
def test_studies_that_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        replace(TINY, **changes)


@pytest.mark.parametrize(
    "of, own",
    [
        ({}, True),
        ({"name": "anchor/mine"}, False),
        ({"name": "language/mine"}, False),
        ({"paper": "a paper"}, False),
        ({"profiles": {"quick": studies.Profile((3, 1), "", paper=True)}}, False),
        ({"paper": "a paper", "own": True}, True),
    ],
)
def test_claims_of_no_paper_are_hypotheses_of_ones_own(of, own, tmp_path):
    one = replace(TINY, smoke=None, **{"paper": None, **of})
    assert one.has_own_claims is own
    (loss_,) = studies.run_study(one, "quick", Store(tmp_path)).claims
    of_a_paper = "reproduced" if "profiles" in of else "agrees at small scale"
    assert (loss_.verdict, loss_.scope == "own") == ("supported" if own else of_a_paper, own)


def test_a_profile_says_for_which_claims_it_is_the_papers_setting(tmp_path):
    def verdict(paper) -> str:
        high = replace(loss, band=(1e9, None))
        one = replace(TINY, claims=(high,), profiles={"quick": studies.Profile((3, 1), "", paper=paper)}, smoke=None)
        return studies.run_study(one, "quick", Store(tmp_path)).claims[0].verdict

    assert verdict(False) == verdict(()) == "differs at small scale"
    assert verdict(True) == verdict(("loss",)) == "contradicted"


@pytest.mark.parametrize("name", studies.STUDIES)
def test_registered_studies_keep_their_contract(name):
    found = studies.study(name)
    assert found.name == name and found.title == studies.study_title(name) and found.summary
    papers = {"paper"} if found.paper_name is not None else set()  # a question of our own has no paper's setting
    assert {"quick", "smoke"} | papers <= set(found.profiles)
    ids = [found.claim(measure).id for measure in found.claims]
    assert ids and len(set(ids)) == len(ids) and all(one.startswith(f"{name}/") for one in ids)
    for measure in found.claims:
        assert measure.measured_as and "{" not in measure.measured_as, measure.name
    addresses = {}
    for profile in found.profiles:
        assert found.note_of(profile)
        addresses[profile] = [experiment.cell.address for experiment in found.experiments_of(profile)]
        assert len(set(addresses[profile])) == len(addresses[profile])
    assert not set.intersection(*map(set, addresses.values()))
    assert not any(found.profile(profile).paper for profile in ("quick", "smoke"))


MOST_SECONDS = 6.0
"""Of the processor, for a smoke profile from task to page. They take about two where this was set, as a suite with a
study of ten seconds is one that nobody runs; others' machines take up to twice as long for the same work, and longer
beside other programs."""

LONGER = {"anchor/open-questions": 2 * MOST_SECONDS}  # thirteen experiments, each with an untrained copy


def from_task_to_page(found: studies.Study, folder: Path) -> tuple[float, Findings, str]:
    """Run a smoke profile and write its page; return the seconds of the processor, the findings and the page."""
    began = process_time()
    findings = studies.run_study(found, "smoke", Store(folder), workers=1)
    page = write_report(findings, folder / "page.html").read_text()
    return process_time() - began, findings, page


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.STUDIES)
def test_smoke_profiles_run_from_task_to_page(tmp_path, name):
    if name.startswith("language/"):
        pytest.importorskip("transformers")
    found = studies.study(name)
    most = LONGER.get(name, MOST_SECONDS)
    seconds, findings, page = from_task_to_page(found, tmp_path)
    if seconds > most:  # a process imports libraries with the first study that needs them
        seconds, _, _ = from_task_to_page(found, tmp_path / "again")
    if os.environ.get("ANCHORLAB_CHECK_TYPES") != "all":  # a check of every function takes time of its own
        assert seconds <= most
    assert (findings.study, findings.profile, findings.provenance.profile) == (name, "smoke", "smoke")
    assert [result.claim for result in findings.claims] == [found.claim(measure) for measure in found.claims]
    assert {result.profile for result in findings.claims} == {"smoke"}
    for result, measure in zip(findings.claims, found.claims, strict=True):
        own = measure.own or found.has_own_claims
        assert result.scope == ("precondition" if measure.precondition else "own" if own else "other"), measure.name
    assert (
        Findings.from_json(findings.to_json()).to_json() == findings.to_json()
    )  # NaN, a place without a value, is itself
    trains = bool(found.experiments_of("smoke"))
    for result in findings.claims if found.observe is None else ():
        assert (result.untrained is not None) == (trains and not result.claim.exact), result.claim.id
    assert all(escape(result.claim.statement) in page for result in findings.claims)


@pytest.mark.parametrize("name", ["anchor/identiti", "", "anchor", "identity/anchor", "../x"])
def test_unknown_studies(name):
    with pytest.raises(SpecError, match=r"^study: unknown study"):
        studies.study(name)


PROFILE = "quick"


low_loss = made_up("low_loss", at_most(10.0), lambda seen: at_end(seen.first, "train", "loss"))


SHORT = Study(
    "own/short",
    "Short.\n\nTwo runs.",
    (low_loss,),
    reads=studies.Reading,
    profiles={PROFILE: Profile(4, "A moment of training.")},
    trains=lambda steps: {0: small(duration=steps), 1: small("recall", duration=steps)},
)


def test_the_runs_behind_findings_are_the_trained_ones_and_their_controls():
    first = small()
    later = replace(first, start=first, recipe=first.recipe.replace(batch=first.recipe.batch * 2))
    expected = {one.cell.address for one in (first, later, first.untrained(), later.untrained())}
    assert len(expected) == 4
    assert _behind([first.cell, later.cell]) == expected


@pytest.mark.slow
def test_a_damaged_record_is_written_anew(tmp_path):
    store = Store(tmp_path)
    folder = findings_directory(store, SHORT.name, PROFILE)
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"{}")
    found = run_study(SHORT, PROFILE, store, workers=1)
    assert {path.name for path in folder.iterdir()} == {FILE, "findings.json"}
    assert kept_findings(store) == [found]
    assert read_use(folder).runs == {run.address for run in store.runs()}
