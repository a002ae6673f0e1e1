"""Parts of profiles: the same experiments with the first of their seeds."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.findings.claims import base_profile
from anchorlab.papers.verifying import candidates
from anchorlab.studies import findings_directory, run_study, study
from anchorlab.studies.profile_names import part_name, part_of, with_fewer_seeds
from anchorlab.training import Members


def seeds_of(name: str, profile: str) -> set[tuple[int, ...]]:
    return {one.members.seeds for one in study(name).experiments_of(profile)}


@pytest.mark.parametrize(
    "name", ["anchor/identity", "anchor/every-token", "retrieval/circuits", "truncation/noise-first"]
)
def test_a_part_has_the_first_seeds_and_nothing_else_changed(name):
    whole, part = (study(name).experiments_of(profile) for profile in ("paper", "paper:2"))
    assert seeds_of(name, "paper:2") == {(1000, 1001)}
    for one, fewer in zip(whole, part, strict=True):
        assert (one.task, one.model, one.recipe) == (fewer.task, fewer.model, fewer.recipe)


def test_members_that_differ_in_more_than_seeds_keep_their_values():
    whole, part = (study("anchor/phase-diagram").experiments_of(profile)[0].members for profile in ("paper", "paper:1"))
    assert set(whole.gamma.given["all"]) == set(part.gamma.given["all"])
    assert len(whole) == 3 * len(part)
    members = Members(seeds=(5, 6, 7), learning_rate=(0.1, 0.2, 0.3))
    assert with_fewer_seeds({"all": (members,)}, 2) == {"all": (members.take(range(2)),)}


def test_a_part_is_in_the_papers_setting_and_says_how_many_seeds_it_has():
    identity = study("anchor/identity")
    whole, part = identity.profile("paper"), identity.profile("paper:2")
    assert part.paper == whole.paper is not False
    assert part.note == f"{whole.note} Of its seeds the first 2 alone."


def test_names():
    assert part_of("paper:2") == ("paper", 2) and part_of("quick") == ("quick", None)
    assert base_profile("quick:2") == base_profile("quick@gpt2") == "quick"
    setting = study("anchor/mechanism").profile("paper").setting  # of five seeds
    assert [part_name("paper", setting, seeds) for seeds in (4, 5, 6)] == ["paper:4", "paper", "paper"]


@pytest.mark.parametrize("profile", ["paper:0", "paper:5", "paper:", "paper:x"])
def test_no_such_part(profile):
    with pytest.raises(SpecError) as caught:
        study("anchor/mechanism").experiments_of(profile)
    assert caught.value.field == "profile"


def test_what_is_verified_may_have_fewer_seeds():
    (whole, *_), (part, *_) = (
        [one for one in candidates(["retrieval/circuits"], seeds) if one.profile.startswith("paper")]
        for seeds in (None, 1)
    )
    assert (whole.profile, part.profile) == ("paper", "paper:1")
    assert {one.members.seeds for one in part.experiments} == {(1000,)}
    assert part.claims == whole.claims
    (alone,) = [one for one in candidates(["truncation/rank-one-noise"], 1) if one.profile.startswith("paper")]
    assert alone.profile == "paper"  # of one seed


@pytest.mark.slow
def test_a_part_is_kept_beside_the_whole(tmp_path):
    findings = run_study(study("anchor/identity"), "smoke:1", tmp_path, workers=1)
    assert (findings.profile, findings.provenance.seeds) == ("smoke:1", "1000")
    from anchorlab.runs import Store

    assert (findings_directory(Store(tmp_path), "anchor/identity", "smoke:1") / "findings.json").exists()


def test_an_own_profile_is_not_named_like_a_part():
    own = study("anchor/identity")
    problem = r"^study\.profiles: 'mine:2' would be read as a part of the profile 'mine'; name it without a colon"
    with pytest.raises(SpecError, match=problem):
        replace(own, profiles={**own.profiles, "mine:2": own.profiles["quick"]})
