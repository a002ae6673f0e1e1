import pytest

from anchorlab.cli.options.fields import as_written, fold, nested, read_value
from anchorlab.errors import SpecError
from anchorlab.training.from_plain_data import merged
from anchorlab.training.members import read_seeds


@pytest.mark.parametrize(
    ("tokens", "folded"),
    [
        (["x", "--seeds", "0:3"], ["x", "--seeds", "0:3"]),
        (["--recipe.data.size", "600"], ["--recipe.FIELD=data.size=600"]),
        (["--recipe.data.size=600"], ["--recipe.FIELD=data.size=600"]),
        (["--task.offset", "-1", "--json"], ["--task.FIELD=offset=-1", "--json"]),
        (["--task.name", "a=b"], ["--task.FIELD=name=a=b"]),
        (["--task.name=a=b"], ["--task.FIELD=name=a=b"]),
        (["--task.name="], ["--task.FIELD=name="]),
        (["--models.layers", "3"], ["--models.layers", "3"]),
    ],
)
def test_folding(tokens, folded):
    assert fold(tokens) == folded


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        (None, {}),
        (["data.size=5", "data.kind=sample", "batch=2"], {"data": {"size": "5", "kind": "sample"}, "batch": "2"}),
        (["learning-rate=1e-3,1e-4,"], {"learning_rate": ["1e-3", "1e-4"]}),
        (["clip=none"], {"clip": None}),
        (['edits={"a": [1, 2]}'], {"edits": {"a": [1, 2]}}),
        (["items=[1, 2]"], {"items": [1, 2]}),
        (["name=a=b"], {"name": "a=b"}),
    ],
)
def test_nesting(fields, data):
    assert nested(fields, "recipe") == data


def test_merging_starts_afresh_with_another_kind():
    base = {"a": {"kind": "x", "p": 1, "q": 2}, "b": 3}
    assert merged(base, {"a": {"p": 5}}) == {"a": {"kind": "x", "p": 5, "q": 2}, "b": 3}
    assert merged(base, {"a": {"kind": "x", "p": 5}}) == {"a": {"kind": "x", "p": 5, "q": 2}, "b": 3}
    assert merged(base, {"a": {"kind": "y"}}) == {"a": {"kind": "y"}, "b": 3}


@pytest.mark.parametrize(
    ("text", "seeds"), [("0:3", (0, 1, 2)), ("7", (7,)), ("0,3,5", (0, 3, 5)), (" 1 : 3 , 9", (1, 2, 9))]
)
def test_seeds(text, seeds):
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "-1", "1:", "3:3", "3:1", "1.5", "0:99999999", "٣", "1,,2"])
def test_malformed_seeds(text):
    with pytest.raises(SpecError, match=r"^seeds: "):
        read_seeds(text)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("recipe.optimiser.learning_rate", "recipe.learning-rate"),
        ("members.learning_rate.0", "members.learning-rate.0"),
        ("members.learning_rates", "members.learning_rates"),
        ("recipe.batch", "recipe.batch"),
    ],
)
def test_errors_name_fields_as_written(field, told):
    short = {"recipe.learning_rate": "recipe.optimiser.learning_rate"}
    with pytest.raises(SpecError) as caught, as_written(["recipe.learning-rate", "members.learning-rate"], short):
        raise SpecError(field, "is wrong", "mend it")
    assert str(caught.value) == f"{told}: is wrong; mend it"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,2", ["1", "2"]),
        ("+5,-2", ["+5", "-2"]),
        ("A x y -> max(x, y)", "A x y -> max(x, y)"),
        ("20 -> 31, 21 -> 40", "20 -> 31, 21 -> 40"),
        ("3,4;4,3", "3,4;4,3"),
    ],
)
def test_commas_make_lists_outside_rules(text, value):
    assert read_value(text, "task.x") == value
