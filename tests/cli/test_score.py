"""Compiled models exported and scored from the terminal."""

import json

import pytest


@pytest.fixture
def exported(anchorlab, workplace):
    said = anchorlab("export", "compiled:identity", "--n", "4", "--out", "out")
    assert said.code == 0
    place = workplace / "out"
    assert said.out == f"3 models with 4 pairs each in {place / 'models'}\ntruth, to keep apart: {place / 'truth'}\n"
    return place


def rankings(place, value):
    """A file with `value(truth, unit)` for each unit."""
    truths = {path.stem: json.loads(path.read_text())["truth"] for path in (place / "truth").iterdir()}
    units = json.loads((place / "models" / "units.json").read_text())
    scores = {name: {unit: value(truths[name], unit) for unit in found} for name, found in units.items()}
    (place.parent / "mine.json").write_text(json.dumps({"method": "my method", "rankings": scores}))


def test_a_right_ranking_and_its_reverse(anchorlab, exported):
    rankings(exported, lambda truth, unit: 2 if unit in truth["minimal"][0] else 1)
    said = anchorlab("score", "mine.json", "--truth", "out/truth", "--json")
    found = json.loads(said.out)
    assert (said.code, said.err, said.new_files, found["method"]) == (0, "", set(), "my method")
    assert [row["model"] for row in found["models"]] == ["identity-1", "identity-2", "identity-3"]
    assert [row["area"] for row in found["models"]] == [1, 1, 1]
    assert all(row["recovered"] == pytest.approx(1, abs=1e-3) and row["size"] == 2 for row in found["models"])
    assert found["means"]["area"] == {"mean": 1, "low": None, "high": None}  # equal models
    said = anchorlab("score", "mine.json", "--truth", "out/truth")
    lines = said.out.splitlines()
    assert lines[0] == "my method" and lines[1].split() == ["model", "area", "chance", "correlation", "recovered"]
    assert lines[2].split()[:2] == ["identity-1", "1"]
    assert ["area", "1"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80
    rankings(exported, lambda truth, unit: 1 if any(unit in one for one in truth["minimal"]) else 2)
    found = json.loads(anchorlab("score", "mine.json", "--truth", "out/truth", "--json").out)
    variants = {path.stem: json.loads(path.read_text())["variant"] for path in (exported / "truth").iterdir()}
    # of a model with a backup three units rank last, two of them in either circuit: half a point for each tie
    by_variant = {"distractor": 0, "cancelling": 0, "backup": 0.25}
    assert {row["model"]: row["area"] for row in found["models"]} == {
        name: by_variant[one] for name, one in variants.items()
    }


def test_equal_scores_have_no_correlation(anchorlab, exported):
    rankings(exported, lambda truth, unit: 1)
    found = json.loads(anchorlab("score", "mine.json", "--truth", "out/truth", "--json").out)
    assert [row["correlation"] for row in found["models"]] == [None] * 3
    assert [row["area"] for row in found["models"]] == [0.5] * 3
    assert "nan" not in anchorlab("score", "mine.json", "--truth", "out/truth").out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "file: mine.json is no JSON: "),
        ('{"method": "a", "rankings": {}}', "rankings.identity-1: is missing; give every model"),
        ('{"method": "a", "rankings": {"\\u001b[31m": {}}}', "rankings.\\x1b[31m: unknown model"),
        ('{"method": "a", "rankings": {"identity-1": 1, "identity-2": 2, "identity-3": 3}}',
         "rankings.identity-1: should"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(refused, exported, workplace, content, told):
    (workplace / "mine.json").write_text(content)
    said = refused("score", "mine.json", "--truth", "out/truth")
    assert said.startswith(f"anchorlab: {told}") and "\x1b" not in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compiled:identiy", "--out", "x"],
         "task: unknown compiled model to rank 'identiy'; did you mean 'identity'?"),
        (["compiled:identity", "--out", "x", "--n", "1"], "n: cannot write 1 pairs; ask for 2 to 100000"),
        (["compiled:identity", "--out", "."], "out: "),
        (["compiled:identity", "--out", "x", "--format", "hf"],
         "format: has no effect on compiled models; leave it out"),
        (["compiled:identity", "--out", "x", "--split", "test"], "split: has no effect on compiled models"),
        (["compiled:identity", "--out", "x", "--text"], "text: has no effect on compiled models"),
        (["compiled:identity", "--out", "x", "--task.length", "9"], "task: has no effect on compiled models"),
        (["anchor/identity", "--out", "x", "--unrotated"], "unrotated: has no effect on a task; leave it out"),
    ],
)  # fmt: skip
def test_bad_export_of_models(refused, workplace, words, told):
    (workplace / "held").touch()
    assert refused("export", *words).startswith(f"anchorlab: {told}")


def test_export_of_models_as_json(anchorlab, workplace):
    said = anchorlab("export", "compiled:identity/backup", "--n=3", "--seed=2", "--unrotated", "--out=out", "--json")
    found = json.loads(said.out)
    (model,) = found.pop("models")
    assert found == {"folder": str(workplace / "out"), "pairs": 3, "rotated": False, "seed": 2}
    kept = json.loads((workplace / "out" / "truth" / f"{model}.json").read_text())
    assert (kept["variant"], kept["rotated"], kept["seed"]) == ("backup", False, 2)


def test_a_bad_file_is_refused_before_anything_is_measured(anchorlab, workplace, monkeypatch):
    def measure(*given, **named):
        raise AssertionError("measures")

    monkeypatch.setattr("anchorlab.truth.known.measured", measure)
    (workplace / "mine.json").write_text('{"method": "my method", "rankings": {"identity-1": {"0.0": true}}}')
    said = anchorlab("score", "mine.json")
    assert (said.code, said.err) == (2, "anchorlab: rankings.composite-1: is missing; give every model\n")
