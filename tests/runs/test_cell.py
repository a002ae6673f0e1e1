import enum
import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorlab.errors import SpecError
from anchorlab.runs import Cell, canonical_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_address_is_the_digest_of_the_canonical_text():
    text = b'{"a":[1,0.1,null,true],"b":{"c":"\\u00e9","d":1e-05}}'
    cell = Cell({"b": {"d": 1e-5, "c": "é"}, "a": (1, 0.1, None, True)}, label="any")
    assert canonical_json(cell.spec).encode() == text
    assert cell.address == hashlib.blake2b(text, digest_size=10).hexdigest()
    assert len(cell.address) == 20


def test_the_label_and_the_order_of_keys_are_no_part_of_the_address():
    first, second = Cell({"a": 1, "b": 2}, label="x"), Cell({"b": 2, "a": 1}, label="y")
    assert first == second and hash(first) == hash(second)


@pytest.mark.parametrize("other", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": None}, {"b": 1}, {}])
def test_another_spec_has_another_address(other):
    assert Cell({"a": 1}).address != Cell(other).address


def test_later_changes_of_the_dictionary_do_not_reach_the_cell():
    data = {"a": [1]}
    cell = Cell(data)
    data["a"].append(2)
    assert cell.spec == {"a": [1]} and cell.address == Cell({"a": [1]}).address


class Colour(str, enum.Enum):  # noqa: UP042 - the kind of value that would print itself differently in other versions
    RED = "red"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"recipe": {"rates": [0.1, math.nan]}}, "cell.recipe.rates.1"),
        ({"scale": math.inf}, "cell.scale"),
        ({"task": object()}, "cell.task"),
        ({"task": {1: 2}}, "cell.task"),
        ({"task": {1, 2}}, "cell.task"),
        ({"task": Colour.RED}, "cell.task"),
        ({"task": b"x"}, "cell.task"),
    ],
)
def test_what_is_not_plain_json_is_refused_by_name(spec, field):
    with pytest.raises(SpecError) as caught:
        Cell(spec)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_a_spec_read_back_from_its_text_has_the_same_address(spec):
    cell = Cell(spec)
    assert Cell(cell.spec).address == cell.address
    assert Cell(dict(reversed(spec.items()))).address == cell.address
