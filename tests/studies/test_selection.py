"""Studies by name, by pattern and by file, and what a TOML file changes in them."""

import sys
from pathlib import Path

import pytest

from anchorlab.errors import SpecError
from anchorlab.runs import Store
from anchorlab.studies import Reading, run_study, study
from anchorlab.studies.hypotheses import WithRuns
from anchorlab.studies.selection import chosen_studies
from anchorlab.studies.toml_file import read_sweep
from tests.studies.study_file import write


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Python's path as it was before."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def toml(folder, text, name="mine"):
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def only(word):
    (one,) = chosen_studies([word])
    return one


BASE = 'study = "anchor/identity"\n'


def test_names_patterns_and_one_of_several_in_a_file(tmp_path):
    found = chosen_studies(["truncation/m*", "anchor/identity", "truncation/memories"])
    assert [one.study.name for one in found] == ["truncation/memories", "anchor/identity"]
    assert found[1].studies("smoke", {}) == [study("anchor/identity")]
    path = write(tmp_path, "chosen_several", "\nB = STUDY.vary(seeds=1)\n")
    with pytest.raises(SpecError, match=r"holds 2 studies; write one of .*:own/chosen_several, .*:\*' for all"):
        chosen_studies([str(path)])
    assert only(f"{path}:own/chosen_several-seeds-0").study.name == "own/chosen_several-seeds-0"
    assert len(chosen_studies([f"{path}:*"])) == 2
    with pytest.raises(SpecError, match=r"unknown study 'own/chosen_severel'; did you mean 'own/chosen_several'"):
        chosen_studies([f"{path}:own/chosen_severel"])


def test_files_whose_studies_have_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(BASE)
    first, second = (str(tmp_path / folder / "mine.toml") for folder in ("a", "b"))
    assert len(chosen_studies([first, first])) == 1
    with pytest.raises(SpecError, match=r"^studies: two of them are named own/mine; give one another name$"):
        chosen_studies([first, second])


def test_what_a_file_changes_under_its_name_and_in_several_studies(tmp_path):
    text = f'{BASE}seeds = "4:7"\n[model]\nheads = 3\n[recipe]\nlearning_rate = 5e-3\n[recipe.evaluation]\nsize = 30\n'
    (one,) = only(toml(tmp_path, text)).studies("smoke", {})
    wanted = {"model.heads": 3, "recipe.optimiser.learning_rate": 5e-3, "recipe.evaluation.size": 30}
    same = study("anchor/identity").vary(wanted, range(4, 7))
    assert one.experiments_of("smoke") == same.experiments_of("smoke")
    assert (one.name, one.title) == ("own/mine", same.title)
    assert one.has_own_claims
    (one,) = only(toml(tmp_path, f'{BASE}name = "own/that"\nseeds = "2000:2002"\n')).studies("smoke", {})
    assert one.name == "own/that" and not one.has_own_claims
    assert all(each.members.seeds == (2000, 2001) for each in one.experiments_of("smoke"))
    found = only(toml(tmp_path, f"{BASE}seeds = [5]\n[model]\nheads = [2, 3]\n")).studies("smoke", {})
    assert [one.name for one in found] == ["own/mine-heads-2", "own/mine-heads-3"]
    assert [one.experiments_of("smoke")[0].model.heads for one in found] == [2, 3]
    assert found[0].experiments_of("smoke")[0].members.seeds == (5,)


def test_options_come_before_the_file_and_a_study_of_ones_own_is_changed(tmp_path):
    chosen = only(toml(tmp_path, f"{BASE}seeds = 2\n[model]\nheads = 2\n"))
    (one,) = chosen.studies("smoke", {"model.heads": 4}, (7, 8))
    assert one.name == "own/mine-heads-4-seeds-7-8"
    experiment = one.experiments_of("smoke")[0]
    assert (experiment.model.heads, experiment.members.seeds) == (4, (7, 8))
    assert one.title.endswith("with model.heads = 4 and seeds 7, 8")
    mine = write(tmp_path, "chosen_changed")
    changes = toml(tmp_path, 'profile = "quick"\n[recipe]\nduration = 3\n')
    (chosen,) = chosen_studies([str(mine)], Path(changes))
    (one,) = chosen.studies("quick", {})
    assert (one.name, chosen.changes.profile) == ("own/mine-own-chosen_changed", "quick")
    assert one.experiments_of("quick")[0].recipe.duration == 3


def test_changes_to_registered_studies_leave_their_findings_apart(tmp_path):
    changes = Path(toml(tmp_path, "seeds = [2000]\n"))
    for name in ("identity", "frequency"):
        (chosen,) = chosen_studies([f"anchor/{name}"], changes)
        assert chosen.studies("smoke", {})[0].name == f"own/mine-anchor-{name}"
    named = Path(toml(tmp_path, 'name = "own/that"\nseeds = [2000]\n'))
    assert chosen_studies(["anchor/identity"], named)[0].studies("smoke", {})[0].name == "own/that"
    (chosen,) = chosen_studies(["anchor/identity"], Path(toml(tmp_path, "[model]\nheads = 3\n")))
    (one,) = chosen.studies("smoke", {})
    assert one.experiments_of("smoke") == study("anchor/identity").vary({"model.heads": 3}).experiments_of("smoke")


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["anchor/identity"], BASE, r"mine\.toml: study: is given besides --vary; leave it out, or run anchorlab"),
        (["anchor/*"], "seeds = 2", r"^vary: .*mine\.toml changes one study; \d+ are named; name one"),
        (["BASE.toml"], "seeds = 2", r"^vary: .*BASE\.toml varies a study itself; name the study that it varies"),
        (["anchor/identity"], "[model]\nhaeds = 3", r"mine\.toml: model\.haeds: unknown field 'haeds'"),
        (["anchor/identity"], "[grid]", r"mine\.toml: has a \[grid\]: it is a sweep"),
    ],
)
def test_changes_that_are_refused(tmp_path, words, text, message):
    based = toml(tmp_path, BASE, "BASE")
    with pytest.raises(SpecError, match=message):
        (chosen,) = chosen_studies([word.replace("BASE.toml", based) for word in words], Path(toml(tmp_path, text)))
        chosen.studies("smoke", {})


def test_no_file_of_changes():
    with pytest.raises(SpecError, match=r"^vary: there is no file none\.toml; check the path"):
        chosen_studies(["anchor/identity"], Path("none.toml"))


@pytest.mark.parametrize(
    "place", ["evil.py", "./evil.py", "../evil.py", "{folder}/evil.py", "evil.py:own/evil", "evil.py:*"]
)
@pytest.mark.parametrize("field", ["study", "task"])
def test_a_toml_file_runs_no_python(tmp_path, place, field):
    """Wherever the Python lies that it names, as the study of a variation or the task of a sweep."""
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        (folder / "evil.py").write_text("open(__file__ + '.ran', 'w')\n")
    grid = "" if field == "study" else "[grid]\nmodel.layers = [1]\n"
    path = toml(tmp_path / "below", f'{field} = "{place.format(folder=tmp_path)}"\n{grid}')
    with pytest.raises(SpecError) as raised:
        only(path) if field == "study" else read_sweep(Path(path))
    assert not list(tmp_path.rglob("*.ran"))
    if field == "study":
        told = rf"mine.toml: study: {place.format(folder=tmp_path)!r:.60} is Python, which no TOML file runs; "
        assert str(raised.value).endswith(f"{told}leave it out and run anchorlab study FILE.py --vary {path}")


@pytest.mark.parametrize("model", ["http://127.0.0.1:9/v1#x", "folder", ""])
def test_a_toml_file_names_no_model(tmp_path, model):
    """Else it could send the key of the environment to a server of its choice."""
    path = toml(tmp_path, f'study = "retrieval/language-models"\nprofile = "quick@{model}"\n')
    with pytest.raises(
        SpecError, match=r"mine\.toml: profile: 'quick@.*' names a model; name it on the command line: -"
    ):
        only(path)


HYPOTHESIS = '[[hypothesis]]\nname = "h"\nstatement = "It is so"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('study = "anchor/identit"', r"mine\.toml: study: unknown study 'anchor/identit'; did you mean"),
        ("seeds = 2", r"mine\.toml: study: is missing"),
        ("x =", r"mine\.toml: cannot be read as TOML"),
        (f'{BASE}seeds = "3:1"', r"mine\.toml: seeds: 3:1 is an empty range"),
        (f'{BASE}profil = "x"', r"mine\.toml: profil: unknown field 'profil'; did you mean 'profile'"),
        (f"{BASE}[model]\nhaeds = 3", r"mine\.toml: model\.haeds: unknown field 'haeds'; did you mean 'heads'"),
        (f"{BASE}[recipe.optimser]\nbeta = 1",
         r"recipe\.optimser\.beta: unknown field 'optimser'; did you mean 'optimiser'"),
        (f"{BASE}[members]\nseeds = 3",
         r"mine\.toml: members\.seeds: is not set here; write seeds at the top of the file"),
        (f'{BASE}[[hypothesis]]\nname = "h"\nstatment = "h"', r"hypothesis\.0\.statment: unknown field .* 'statement'"),
        (f"{BASE}[model]\nheads = 0", r"mine\.toml: model\.heads: "),
        (f"{BASE}[model]\nheads = []", r"mine\.toml: model\.heads: lists no value"),
        (f"{BASE}[model]\nheads = [2, 1, 2]", r"mine\.toml: model\.heads: lists a value twice; give each once"),
        (f"{BASE}[recipe.data]\nsize = 60", r"mine\.toml: recipe\.data\.size: is what anchor/identity compares"),
        (f'{BASE}name = "a b"\nseeds = 1', r"mine\.toml: study\.name: 'a b' is not a name"),
        ('study = "mine.toml"', r"mine\.toml: study: 'mine.toml' is a file; name the study that is varied"),
        ('study = "anchor/*"', r"mine\.toml: study: 'anchor/\*' is several studies"),
        ('study = "language/heads"\nseeds = 2', r"language/heads trains nothing"),
        (f"{BASE}[grid]\n", r"mine\.toml: has a \[grid\]: it is a sweep; run anchorlab sweep"),
        (BASE + HYPOTHESIS, r"mine\.toml: hypothesis\.0\.h: needs one band"),
        (f"{BASE}{HYPOTHESIS}at_least = 1\nat_most = 2", r"mine\.toml: hypothesis\.0\.h: needs one band"),
        (f"{BASE}{HYPOTHESIS}within = [2, 1]", r"mine\.toml: hypothesis\.0\.h: 2 to 1 accepts no value"),
        (f'{BASE}{HYPOTHESIS}at_least = 1\nruns = "no *"', r"mine\.toml: hypothesis\.h\.runs: no run is named 'no \*'"),
        (f'{BASE}{HYPOTHESIS}at_least = 1\nsplit = "tset"', r"hypothesis\.h\.split: .* did you mean 'test'"),
        (f'{BASE}{HYPOTHESIS}at_least = 1\nmetric = "los"', r"hypothesis\.h\.metric: .* did you mean 'loss'"),
        (BASE + 2 * f"{HYPOTHESIS}at_least = 1\n", r"hypothesis\.h: own/mine has a claim of this name"),
    ],
)  # fmt: skip
def test_an_entry_that_is_refused_names_the_file_and_the_field(tmp_path, text, message):
    with pytest.raises(SpecError, match=message):
        only(toml(tmp_path, text)).studies("smoke", {})


def test_hypotheses_are_judged_beside_the_claims(tmp_path):
    mine = write(tmp_path, "chosen_judged")
    text = "[recipe]\nduration = 2\n"
    for name, band in (("high", "at_least = 0"), ("low", "at_most = -1"), ("here", "within = [0, 1000]")):
        text += f'[[hypothesis]]\nname = "{name}"\nstatement = "S"\n{band}\n'
        text += 'split = "train"\nmetric = "loss"\nruns = "mi*"\n'
    (chosen,) = chosen_studies([str(mine)], Path(toml(tmp_path, text)))
    (one,) = chosen.studies("quick", {})
    findings = run_study(one, "quick", Store(tmp_path / "runs"), workers=1)
    verdicts = {result.claim.id: result.verdict for result in findings.claims}
    assert verdicts == {
        "own/mine-own-chosen_judged/finite": "supported", "own/mine-own-chosen_judged/high": "supported",
        "own/mine-own-chosen_judged/low": "not supported", "own/mine-own-chosen_judged/here": "supported",
    }  # fmt: skip
    values = {result.claim.id: result.value for result in findings.claims}
    assert (
        values["own/mine-own-chosen_judged/high"] == values["own/mine-own-chosen_judged/finite"]
    )  # the study's own measure reads the same loss
    assert all(result.untrained is not None and result.untrained.value is not None for result in findings.claims)


def test_a_hypothesis_is_no_papers_although_the_claims_are(tmp_path):
    text = f"{BASE}seeds = [2000]\n{HYPOTHESIS}at_least = 2\n"
    (one,) = only(toml(tmp_path, text)).studies("smoke", {})
    *claims, mine = [one.claim(measure) for measure in one.claims]
    assert all(claim.source.startswith("anchor functions") for claim in claims)
    assert mine.source == "our own hypothesis" and one.claims[-1].own and not one.has_own_claims


class MadeUpRun:
    """A run that ends with given losses."""

    def __init__(self, experiment, losses):
        import polars as pl

        self.table = pl.DataFrame({"member": range(len(losses)), "value": losses})
        self.experiment = experiment

    def metric(self, *_):
        return self.table


def hypothesis_on(folder, seeds, losses, runs="*"):
    """Judge a hypothesis about the identity study's runs, of which each ends with its own losses."""
    text = f'{BASE}seeds = {seeds}\n{HYPOTHESIS}metric = "loss"\nruns = "{runs}"\nat_least = 0\n'
    (one,) = only(toml(folder, text)).studies("smoke", {})
    experiments = one.experiments_of("smoke")
    made_up = [MadeUpRun(each, losses(index)) for index, each in enumerate(experiments)]
    seen = WithRuns(Reading(dict(enumerate(made_up))), [each.label for each in experiments])
    return one.claims[-1](seen), len(experiments)


@pytest.mark.untyped
def test_a_hypothesis_reads_the_runs_that_it_names_and_a_seed_of_several_is_one_unit(tmp_path):
    # by the labels of this study: the store may know a run under another
    label = study("anchor/identity").experiments_of("smoke")[1].label
    found, _ = hypothesis_on(tmp_path, [2000], lambda index: [float(index)], label)
    assert found.value == 1.0
    found, count = hypothesis_on(tmp_path, [2000, 2001, 2002], lambda index: [index + each for each in (0.0, 10, 30)])
    middle = (count - 1) / 2  # mean of 0, 1, ..., count - 1
    assert count > 1 and found.units == pytest.approx((middle, middle + 10, middle + 30))
    assert found.spread.endswith("over 3 seeds")
