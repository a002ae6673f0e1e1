"""The models that are handed out: their ids, their files, and their truths read back."""

import json

import pytest
import torch
from safetensors.torch import load_file

import anchorlab as al
from anchorlab.errors import SpecError
from anchorlab.truth import COMPILED, VARIANTS, Known, compiled, export_models, known_models
from anchorlab.truth.models import MODELS, chosen, handed_out
from tests.truth.hand_made import BACKUP


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("identity/backup", ("identity/backup",)),
        ("identity", ("identity/backup", "identity/distractor", "identity/cancelling")),
        ("r*/backup", ("reading-comprehension/backup", "recall/backup", "retrieval/backup")),
        ("*", MODELS),
    ],
)
def test_patterns(pattern, found):
    assert chosen(pattern) == found and len(MODELS) == 3 * 9


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("identiy", "did you mean 'identity'"), ("identity/plain", "plain ones need all of their units; choose among")],
)
def test_no_such_model(pattern, told):
    """A plain model needs every unit, so that no ranking of its units is wrong."""
    with pytest.raises(SpecError, match=told):
        chosen(pattern)


def test_an_id_is_the_same_whatever_the_pattern_and_its_number_does_not_show_the_variant():
    first = {next(handed_out("identity", seed=seed))[1].variant for seed in range(12)}
    assert first == {"backup", "distractor", "cancelling"}
    every = {made.variant: name for name, made in handed_out("identity", seed=4)}
    assert sorted(every.values()) == ["identity-1", "identity-2", "identity-3"]
    for variant, name in every.items():
        ((again, _),) = handed_out(f"identity/{variant}", seed=4)
        assert again == name


# Truths as files: read back as written, and refused if damaged.
def test_a_truth_is_read_back(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(BACKUP.model_dump(mode="json")))
    assert known_models(tmp_path) == {"one": BACKUP}
    assert BACKUP.landscape.minimal(0.1)[0] == (("0.0", "1.0"), ("0.1", "1.0"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss": [1.0] * 8}, "one.json: loss: has 8 numbers for 4 units; write it again"),
        ({"truth": {"units": [], "minimal": []}}, "one.json: truth.minimal: holds no sets of the units; write it"),
        ({"colour": 1}, "one.json: colour: unknown field"),
        ({"format": 2}, "one.json: format: "),
    ],
)
def test_a_damaged_truth(tmp_path, change, told):
    (tmp_path / "one.json").write_text(json.dumps(BACKUP.model_dump(mode="json") | change))
    with pytest.raises(SpecError, match=told) as caught:
        known_models(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_truth(tmp_path):
    with pytest.raises(SpecError, match=r"truth: .* holds no truth; name the folder `truth`"):
        known_models(tmp_path)
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(SpecError, match=r"one.json: is damaged; write it again"):
        known_models(tmp_path)


def test_without_a_folder_the_models_are_measured(monkeypatch):
    """The default is the export with seed 0."""
    monkeypatch.setattr("anchorlab.truth.known.handed_out", lambda: handed_out("identity/backup"))
    ((name, found),) = known_models().items()
    ((same, made),) = handed_out("identity/backup")
    assert name == same and isinstance(found, Known) and found.truth == made.truth
    # a model without its circuit gives equal logits to at least all 81 items
    assert found.loss[0] > 3 and found.loss[-1] < 1e-3


# Exported models: usable as they are, and silent about their truth.
PAIRS = 30
EVERY = [name for name in COMPILED if name not in ("identity", "recall")]


@pytest.fixture(
    scope="module", params=["identity", "recall", *(pytest.param(n, marks=pytest.mark.slow) for n in EVERY)]
)
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "deep" / "out"
    assert export_models(folder, request.param, pairs=PAIRS) == tuple(f"{request.param}-{one}" for one in (1, 2, 3))
    return request.param, folder


FILES = ("model.json", "model.safetensors", "pairs.safetensors")


def test_files_and_their_models_which_answer_both_sequences_of_each_pair(exported):
    """The oracle reads the answers off the sequences."""
    name, folder = exported
    inside = [f"models/{name}-{one}/{file}" for one in (1, 2, 3) for file in FILES]
    truths = [f"truth/{name}-{one}.json" for one in (1, 2, 3)]
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == sorted([*inside, *truths, "models/units.json"])
    assert [path.name for path in folder.parent.iterdir()] == ["out"]  # no temporary folder
    task = compiled(name).task
    for place in sorted((folder / "models").glob("*-*")):
        model, pairs = al.load_pretrained(place), load_file(place / "pairs.safetensors")
        assert pairs["clean"].shape == (PAIRS, task.shape.length)
        for side in ("clean", "corrupted"):
            inputs, answers, positions = (pairs[f"{side}{part}"] for part in ("", "_answers", "_positions"))
            assert torch.equal(task.oracle(inputs).answers, answers)
            found = model(inputs).argmax(dim=-1).gather(1, positions)
            assert torch.equal(found, answers)
        previous = [PAIRS - 1, *range(PAIRS - 1)]
        for part in ("", "_answers", "_positions"):
            assert torch.equal(pairs[f"corrupted{part}"], pairs[f"clean{part}"][previous])
        different = (pairs["clean_answers"] != pairs["corrupted_answers"]).double().mean()
        assert different > 0.9 and not (pairs["clean"] == pairs["corrupted"]).all(dim=1).any()


def test_models_say_nothing_about_their_truth(exported):
    _, folder = exported
    known = known_models(folder / "truth")
    assert {one.variant for one in known.values()} == {*VARIANTS} - {"plain"}
    words = {*VARIANTS, *(unit.role for one in known.values() for unit in one.truth.units)} - {"plain"}
    words |= {"distracting", "minimal", "rotated", '"seed"', '"role"', '"variant"'}
    assert len(words) > 8
    for path in (folder / "models").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert [word for word in words if word.encode() in content] == []


def test_heads_of_one_layer_look_alike(exported):
    """All units write with a similar norm, so that none is seen to be idle; the weights of heads tell no role."""
    _, folder = exported
    for place in (folder / "models").glob("*-*"):
        saved = json.loads((place / "model.json").read_text())["model"]
        weights = load_file(place / "model.safetensors")
        for layer in range(saved["layers"]):
            norms = [part.norm() for part in weights[f"blocks.{layer}.attn.W_O"].chunk(saved["heads"], dim=0)]
            assert min(norms) > 0.1 * max(norms)


def test_the_truth_holds_for_the_files(exported):
    """Measured on the written models, the sets that suffice are those known by construction."""
    name, folder = exported
    units = json.loads((folder / "models" / "units.json").read_text())
    known = known_models(folder / "truth")
    assert units == {one: list(known[one].units) for one in known}
    for one, truth in known.items():
        model = al.load_pretrained(folder / "models" / one)
        found = al.landscape(model, units[one], task=compiled(name).task, seed=5, sequences=100, progress=False)
        assert {frozenset(each) for each in found.minimal(0.1)[0]} == {frozenset(each) for each in truth.truth.minimal}
        again = al.landscape(model, units[one], task=compiled(name).task, progress=False)
        assert torch.allclose(again.loss, truth.landscape.loss, atol=1e-4)


def test_another_seed_is_another_export(tmp_path):
    for seed in (0, 0, 1):
        export_models(tmp_path / f"{seed}{len([*tmp_path.iterdir()])}", "identity/backup", pairs=5, seed=seed)
    first, again, other = (next((one / "models").glob("*-*")) for one in sorted(tmp_path.iterdir()))
    for file in ("model.safetensors", "pairs.safetensors"):
        assert (first / file).read_bytes() == (again / file).read_bytes() != (other / file).read_bytes()


def test_the_plain_basis_has_weights_as_written(tmp_path):
    """As written, most entries are 0; in a random basis none is."""
    for rotated, least, most in ((False, 0.9, 1), (True, 0, 0.01)):
        folder = tmp_path / str(rotated)
        export_models(folder, "identity/distractor", pairs=2, rotated=rotated)
        weights = load_file(next(folder.glob("models/*/model.safetensors")))["blocks.1.attn.W_V"]
        assert least <= (weights == 0).double().mean() <= most


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("new", {"pattern": "nothing"}, "models: unknown"),
        ("new", {"pairs": 1}, "pairs: cannot write 1 pairs; ask for 2 to 100000"),
        ("held", {}, "folder: .*held holds files; name a new folder"),
        ("held/file", {}, "folder: .*file is a file"),
        ("held/file/below", {}, "folder: .*below cannot be written"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, options, told):
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "file").write_text("mine")
    with pytest.raises(SpecError, match=told):
        export_models(tmp_path / name, **({"pattern": "identity/backup"} | options))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "held"]
    assert (tmp_path / "held" / "file").read_text() == "mine"
