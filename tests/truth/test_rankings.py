"""Files of rankings, right and wrong, and the scores of rankings of two models made by hand."""

import json
import math
import os
from itertools import permutations

import pytest

from anchorlab.errors import SpecError
from anchorlab.truth import Rankings, means, read_rankings, score_rankings
from anchorlab.truth.rankings import MOST_BYTES
from tests.truth.hand_made import BACKUP, SINGLE, UNITS

ASKED = {"identity-1": ("0.0", "1.0"), "identity-3": ("0.0", "0.1")}
RIGHT = {"method": "mine", "rankings": {"identity-1": {"0.0": 1, "1.0": -2.5}, "identity-3": {"0.1": 0, "0.0": 1e3}}}


@pytest.fixture
def read(tmp_path):
    def call(content):
        path = tmp_path / "mine.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_rankings(path, ASKED)

    return call


def test_a_right_file_is_read_and_a_link_followed(read, tmp_path):
    found = read(json.dumps(RIGHT))
    assert found.method == "mine"
    assert found.scores == {"identity-1": {"0.0": 1.0, "1.0": -2.5}, "identity-3": {"0.0": 1e3, "0.1": 0.0}}
    (tmp_path / "real.json").write_text(json.dumps(RIGHT))
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert read_rankings(tmp_path / "link.json", ASKED).method == "mine"


def changed(unit, model="identity-3", **others):
    """The file with another text in place of a model's units."""
    return json.dumps(RIGHT | others).replace(json.dumps(RIGHT["rankings"][model]), unit)


BAD = {
    "no JSON": ("{'method'", "file: .* is no JSON: .*; write {"),
    "empty": ("", "file: .* is no JSON"),
    "UTF-16": ("{}".encode("utf-16"), "file: .* is no text in UTF-8; write"),
    "too large": (b" " * (MOST_BYTES + 1), "file: .* cannot be read: is larger than 1048576 bytes; name"),
    "nested": ("[" * 100_000 + "]" * 100_000, "file: .* is nested deeper than 64 levels; write"),
    "a list": ("[]", "file: should be a table, got a list; write"),
    "no rankings": ('{"method": "mine"}', "rankings: is missing; give every field"),
    "no method": (json.dumps({"rankings": RIGHT["rankings"]}), "method: is missing; give every field"),
    "method": (json.dumps(RIGHT | {"method": 3}), "method: should be text, got a number; name the method"),
    "another field": (json.dumps(RIGHT | {"ranking": 3}), "ranking: unknown field 'ranking'; did you mean 'rankings'?"),
    "rankings": (json.dumps(RIGHT | {"rankings": [1]}), "rankings: should be a table, got a list; write"),
    "no model": (
        json.dumps(RIGHT | {"rankings": {"identity-1": RIGHT["rankings"]["identity-1"]}}),
        "rankings.identity-3: is missing; give every model",
    ),
    "unknown model": (
        json.dumps(RIGHT | {"rankings": RIGHT["rankings"] | {"identity-2": {}}}),
        "rankings.identity-2: unknown model 'identity-2'; did you mean",
    ),
    "units": (changed("[1, 2]"), "rankings.identity-3: should be a table, got a list; write"),
    "no unit": (changed('{"0.0": 1}'), "rankings.identity-3.0.1: is missing; give every unit"),
    "unknown unit": (changed('{"0.0": 1, "0.1": 2, "0.2": 3}'), "rankings.identity-3.0.2: unknown unit '0.2'; did you"),
    "NaN": (changed('{"0.0": 1, "0.1": NaN}'), "rankings.identity-3.0.1: is not finite; give each unit a finite"),
    "infinity": (changed('{"0.0": 1, "0.1": -Infinity}'), "rankings.identity-3.0.1: is not finite"),
    "1e999": (changed('{"0.0": 1, "0.1": 1e999}'), "rankings.identity-3.0.1: is not finite"),
    "a long integer": (changed(f'{{"0.0": 1, "0.1": {"9" * 400}}}'), "rankings.identity-3.0.1: is not finite"),
    "a longer integer": (changed(f'{{"0.0": 1, "0.1": {"9" * 9000}}}'), "file: .* Exceeds the limit .*; write"),
    "truth": (changed('{"0.0": 1, "0.1": true}'), "rankings.identity-3.0.1: should be a number, got a truth value;"),
    "text": (changed('{"0.0": 1, "0.1": "2"}'), "rankings.identity-3.0.1: should be a number, got text; give"),
    "null": (changed('{"0.0": 1, "0.1": null}'), "rankings.identity-3.0.1: should be a number, got null; give"),
    "deep": (changed('{"0.0": 1, "0.1": [[2]]}'), "rankings.identity-3.0.1: should be a number, got a list; give"),
    "a model twice": (
        json.dumps(RIGHT).replace('"rankings": {', '"rankings": {"identity-3": {"0.0": 5, "0.1": 1}, '),
        r"file: .*mine.json names 'identity-3' twice; write {",
    ),
    "a unit twice": (changed('{"0.0": 1, "0.1": 2, "0.0": 3}'), "file: .* names '0.0' twice; write {"),
    "a field twice": ('{"method": "a", "method": "b", "rankings": {}}', "file: .* names 'method' twice; write {"),
    "a long name": (json.dumps(RIGHT | {"x" * 500_000: 1}), "x{60}: unknown field 'x{60}'; known: method, rankings"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_with_the_field(read, case):
    content, told = BAD[case]
    with pytest.raises(SpecError, match=f"^{told}") as caught:
        read(content)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("none", "No such file"), ("", "is a folder"), ("pipe", "is neither a file nor a folder")):
        with pytest.raises(SpecError, match=f"^file: .* cannot be read: {told}.*; name a file of rankings"):
            read_rankings(tmp_path / name, ASKED)


# Scores of rankings of two models made by hand: one with a single circuit, one with a backup.
def scored(known, *values):
    rankings = Rankings("mine", {"one": dict(zip(UNITS, values, strict=True))})
    return score_rankings(rankings, {"one": known}).row(0, named=True)


def area(values, positive):
    """The share of pairs of a positive and a negative unit in the right order."""
    pairs = [
        (values[a], values[b]) for a in range(4) for b in range(4) if UNITS[a] in positive and UNITS[b] not in positive
    ]
    return sum(first > second for first, second in pairs) / len(pairs)


def test_a_right_ranking_scores_1_and_its_reverse_0():
    found = scored(SINGLE, 4, 1, 3, 2)
    assert (found["area"], found["recovered"], found["size"]) == (1, 1, 2)
    found = scored(SINGLE, 1, 4, 2, 3)
    assert (found["area"], found["recovered"], found["size"]) == (0, 0, 2)
    assert scored(SINGLE, 1, 1, 1, 1)["area"] == 0.5
    assert scored(SINGLE, -4, 1, 3, -2) == scored(SINGLE, 4, 1, 3, 2)  # the size of a score counts
    for values in ((1, 4, 3, 2), (4, 1, 3, 2)):  # any of several circuits is right
        found = scored(BACKUP, *values)
        assert (found["area"], found["recovered"]) == (1, 1)


def test_areas_chance_and_correlation_of_all_rankings_of_a_model_with_a_backup():
    sets = ({"0.0", "1.0"}, {"0.1", "1.0"})
    for values in permutations((1, 2, 3, 4)):
        assert scored(BACKUP, *values)["area"] == max(area(values, one) for one in sets)
    every = [*permutations((1, 2, 3, 4))]
    both = sum(max(area(one, {"0.0", "1.0"}), area(one, {"0.1", "1.0"})) for one in every) / len(every)
    assert both > 0.6
    # 2000 draws of areas in [0, 1], so an error below 4 * 0.5 / sqrt(2000)
    assert scored(BACKUP, 4, 3, 2, 1)["area_by_chance"] == pytest.approx(both, abs=0.045)
    assert scored(SINGLE, 4, 3, 2, 1)["area_by_chance"] == pytest.approx(0.5, abs=0.045)
    # They are 8/3 for 1.0, 2/3 for each of 0.0 and 0.1, and 0 for 1.1; ranks 4, 2.5, 2.5, 1.
    assert scored(BACKUP, 3, 2, 4, 1)["correlation"] == pytest.approx(4.5 / math.sqrt(5 * 4.5))
    assert scored(BACKUP, 2, 3, 1, 4)["correlation"] == pytest.approx(-4.5 / math.sqrt(5 * 4.5))
    assert math.isnan(scored(BACKUP, 1, 1, 1, 1)["correlation"])


def test_means_over_models():
    known = {"a": SINGLE, "b": SINGLE, "c": SINGLE, "d": SINGLE}
    right, wrong, equal = (
        dict(zip(UNITS, values, strict=True)) for values in ((4, 1, 3, 2), (1, 4, 2, 3), (1, 1, 1, 1))
    )
    frame = score_rankings(Rankings("mine", {"a": right, "b": wrong, "c": right, "d": equal}), known)
    assert frame["model"].to_list() == ["a", "b", "c", "d"]
    mean, low, high = means(frame)["area"]
    # the variance of 1, 0, 1 and 0.5 is 0.6875 / 3; Student's quantile with three degrees of freedom is 3.182
    assert mean == (1 + 0 + 1 + 0.5) / 4
    half = 3.182 * math.sqrt(0.6875 / 3 / 4)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=1e-3)
    # of equal scores the correlation is unknown; those of `right` and `wrong` are +0.894 and -0.894
    assert means(frame)["correlation"][0] == pytest.approx(2 / math.sqrt(5) / 3)
    same = means(score_rankings(Rankings("mine", dict.fromkeys(known, right)), known))
    assert same["area"] == (1, None, None)
    assert means(frame.head(1))["area"] == (1, None, None)
