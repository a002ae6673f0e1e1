"""Fields of runs, conditions on them, orders by them, and what tells runs apart."""

from datetime import datetime
from itertools import combinations

import pytest

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec
from anchorlab.runs import Condition, Entry, Fields, chosen, differences, ordered, short_names, text_of, words
from anchorlab.runs.differences import differing, shortest


def entry(address, label="tiny", trained=True, **spec):
    spec = spec if trained else {**spec, "trained": False}
    environment = {"torch": "2.6", "commit": None}
    return Entry(address, "finished", label, 3, 1000 * len(address), 10**12 * len(address), spec, [environment])


RUNS = [
    entry(
        "a", model={"layers": 2, "kind": "decoder", "norm": True}, members={"seeds": [0, 1, 2]}, recipe={"stop": None}
    ),
    entry("bb", model={"layers": 10, "kind": "decoder", "norm": False}, members={"seeds": [3]}, recipe={"stop": 1.5}),
    entry("ccc", model={"kind": "recall"}, members={"seeds": [0, 2]}, recipe={"stop": None}),
    entry("dddd", model={"kind": "recall"}, members={"seeds": [4]}, recipe={"stop": None}, trained=False),
]
ENDS = {"a": {"test.accuracy": 0.5, "train.loss": 1.0}, "bb": {"test.accuracy": 0.75}}
STUDIES = {"a": frozenset({"own/one", "own/two"}), "ccc": frozenset({"own/two"})}
FIELDS = Fields(RUNS, lambda: ENDS, lambda: STUDIES)


@pytest.mark.parametrize(
    ("texts", "addresses"),
    [
        (["model.layers=2"], "a"),
        (["layers==2"], "a"),
        (["layers = 2.0"], "a"),
        (["layers!=2"], "bb ccc dddd"),
        (["layers>2"], "bb"),
        (["layers>=2"], "a bb"),
        (["layers<10"], "a"),
        (["layers<=10", "layers>2"], "bb"),
        (["layers=none"], "ccc dddd"),
        (["layers!=none"], "a bb"),
        (["kind=recall"], "ccc dddd"),
        (["kind<e"], "a bb"),  # text is compared with text
        (["kind>2"], ""),
        (["norm=true"], "a"),
        (["norm=1"], ""),
        (["norm!=true"], "bb ccc dddd"),
        (["norm>=0"], ""),
        (["seeds=[0,2]"], "ccc"),
        (["seeds=2"], "a ccc"),
        (["members.seeds!=0"], "bb dddd"),
        (["members=3"], "a bb ccc dddd"),  # their number
        (["stop>1e0"], "bb"),
        (["study=own/two"], "a ccc"),
        (["studies!=own/one"], "bb ccc dddd"),
        (["trained=false"], "dddd"),
        (["label=tiny"], "a bb ccc"),
        (["label=tiny, untrained"], "dddd"),
        (["mb>=0.003"], "ccc dddd"),
        (["torch=2.6"], "a bb ccc dddd"),  # versions are text, which a number equals as it is written
        (["torch=2.60"], ""),
        (["torch>2.5"], ""),  # no order between text and numbers
        (['torch="2.6"'], "a bb ccc dddd"),
        (["test.accuracy>0.5"], "bb"),
        (["metrics.test.accuracy<=0.5"], "a"),
        (["run=ccc"], "ccc"),
        ([], "a bb ccc dddd"),
    ],
)
def test_conditions_choose_runs(texts, addresses):
    conditions = [Condition.parse(text) for text in texts]
    assert [one.address for one in chosen(FIELDS, conditions)[0]] == addresses.split()


def test_a_field_that_is_left_out_at_its_default_is_none():
    """The norms of a decoder come last by default."""
    specs = {"a": DecoderSpec(norm="post"), "bb": DecoderSpec(norm="pre"), "ccc": DecoderSpec()}
    fields = Fields([entry(address, model=spec.model_dump(mode="json")) for address, spec in specs.items()])
    found = {text: chosen(fields, [Condition.parse(f"model.norm={text}")])[0] for text in ("none", "post", "pre")}
    assert {text: [one.address for one in entries] for text, entries in found.items()} == {
        "none": ["a", "ccc"], "post": [], "pre": ["bb"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("when=2026-11-20", "1 2"),
        ("when!=2026-11-20", "0 3"),
        ("when>2026-11-20", "3"),
        ("when>=2026-11-20", "1 2 3"),
        ("when<2026-11-20", "0"),
        ("when<=2026-11-20", "0 1 2"),
        ("When=2026-11-20 13", "2"),
        ("when>=2026-11-20T13:05", "2 3"),
        ("when>2026-11-20 13:05", "3"),
        ("when<=2026", "0 1 2 3"),
        ("when>2026", ""),
    ],
)
def test_a_time_is_compared_as_far_as_it_is_written(text, runs):
    times = [(19, 23, 59), (20, 0, 0), (20, 13, 5), (21, 0, 0)]
    ended = [int(datetime(2026, 11, *time).timestamp() * 1e9) for time in times]
    entries = [Entry(str(at), "finished", "tiny", 3, 1000, time, {}, []) for at, time in enumerate(ended)]
    assert [one.address for one in chosen(Fields(entries), [Condition.parse(text)])[0]] == runs.split()


@pytest.mark.parametrize("value", ["yesterday", "11-20", "", "2026-11-5", "20261120", "2026-11-20T13:05:30"])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(SpecError, match=rf"^where\.when: '{value}' is no time; write 2026-11-20 or 2026-11-20T13:05$"):
        Condition.parse(f"when={value}")


@pytest.mark.parametrize("text", ["", "layers", "=2", "layers~2", ">", "  = ", "a>>0.5", "a>=>1", "a<", "a >= "])
def test_other_texts_are_no_conditions(text):
    with pytest.raises(SpecError, match=r"^where: .* is not a condition; write one such as"):
        Condition.parse(text)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.leyers", "no run has a field 'model.leyers'; the nearest is 'model.layers', and"),
        ("lyers", "the nearest is 'model.layers', and `anchorlab runs show RUN` lists all"),
        ("perplexity", "no run has a field 'perplexity'; the nearest is 'metrics\\."),
        ("metrics.test.acc", "the nearest is 'metrics.test.accuracy', and"),
        ("loss.train", "no run has a field"),
        ("layers.model", "no run has a field"),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_one(name, message):
    with pytest.raises(SpecError, match=rf"^sort: .*{message}"):
        FIELDS.resolve(name, "sort")


def test_a_field_with_a_hyphen_has_its_full_path():
    fields = Fields([entry("a", recipe={"evaluation": {"edits": {"no-heads": [1]}}, "learning_rate": 0.1})])
    for name in ("recipe.evaluation.edits.no-heads", "recipe.learning_rate"):
        assert fields.resolve(name, "where") == fields.resolve(name.replace("g_r", "g-r"), "where") == name


def test_a_store_without_runs_has_any_field():
    assert Fields([]).resolve("layers", "sort") == "layers"


def test_a_name_that_several_paths_may_mean_is_an_error_unless_only_one_is_given_by_any_run():
    runs = [
        entry("a", recipe={"optimiser": {"rate": 1}, "data": {"kind": "x"}}, members={"rate": None}, task={"kind": 2})
    ]
    fields = Fields(runs)
    assert fields.resolve("rate", "where") == "recipe.optimiser.rate"
    assert fields.resolve("recipe.rate", "where") == "recipe.optimiser.rate"
    assert fields.resolve("members.rate", "where") == "members.rate"
    with pytest.raises(SpecError, match=r"^where: 'kind' may mean recipe.data.kind, task.kind; write one of them"):
        fields.resolve("kind", "where")


def test_metrics_are_read_only_when_one_is_named():
    def fail():
        raise AssertionError

    fields = Fields(RUNS, fail)
    assert [one.address for one in chosen(fields, [Condition.parse("model.layers=2")])[0]] == ["a"]
    with pytest.raises(AssertionError):
        fields.resolve("test.accuracy", "where")


@pytest.mark.parametrize(
    ("names", "reverse", "addresses"),
    [
        (["layers"], False, "a bb ccc dddd"),  # numbers as numbers; runs without a value come last
        (["layers"], True, "bb a ccc dddd"),
        (["kind", "when"], True, "dddd ccc bb a"),
        (["seeds"], False, "a ccc bb dddd"),  # item by item
        (["test.accuracy"], True, "bb a ccc dddd"),
        (["studies"], False, "a ccc bb dddd"),
    ],
)
def test_orders(names, reverse, addresses):
    assert [one.address for one in ordered(FIELDS, RUNS, names, reverse)] == addresses.split()


@pytest.mark.parametrize(("reverse", "addresses"), [(False, "dddd ccc a bb"), (True, "a ccc dddd bb")])
def test_a_run_that_diverged_comes_last(reverse, addresses):
    losses = zip(RUNS, (3.0, float("nan"), 1.0, 0.5), strict=True)
    fields = Fields(RUNS, lambda: {one.address: {"test.loss": loss} for one, loss in losses})
    assert [one.address for one in ordered(fields, RUNS, ["test.loss"], reverse)] == addresses.split()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([0, 1, 2], "0..2"), ([3, 4, 7], "3, 4, 7"), ([5], "5"), ([], ""), (None, "none"), (0.001, "0.001"),
        (1e-8, "1e-08"), (True, "True"), ([True, 2], "True, 2"), (frozenset({"b", "a"}), "a, b"),
        ({"a": 1}, '{"a": 1}'), ("x", "x"),
    ],
)  # fmt: skip
def test_values_in_words(value, text):
    assert text_of(value) == text


def test_last_names_are_enough_where_they_differ():
    assert short_names(["model.layers", "a.kind", "b.kind"]) == ["layers", "a.kind", "b.kind"]


def test_runs_of_one_label_are_told_apart_by_the_fewest_fields():
    runs = [
        entry(f"{layers}{heads}", model={"layers": layers, "heads": heads, "width": 8 * heads}, seeds=[layers, heads])
        for layers in (1, 2)
        for heads in (1, 2)
    ]
    found = differences([*runs[:2], entry("other", label="another", model={"layers": 9})])
    assert found == {"11": {"model.heads": 1}, "12": {"model.heads": 2}, "other": {}}
    assert list(differences(runs)["21"]) == ["seeds"]  # one field tells all four apart
    assert words({"model.layers": 2, "recipe.learning_rate": 1e-3}) == "layers 2, learning rate 0.001"
    assert words({"model.kind": "a", "recipe.data.kind": "b"}) == "model.kind a, recipe.data.kind b"


def test_runs_of_two_kinds_of_models_are_told_apart_by_the_kind():
    runs = [entry("a", model={"feed_forward": True, "kind": "decoder"}), entry("b", model={"kind": "lstm"})]
    assert differences(runs) == {"a": {"model.kind": "decoder"}, "b": {"model.kind": "lstm"}}


def test_untrained_runs_and_damaged_ones_have_labels_of_their_own():
    damaged = Entry("x", "damaged", "", 0, 0, 0)
    assert differences([RUNS[0], RUNS[3], damaged]) == {"a": {}, "dddd": {}, "x": {}}


@pytest.mark.parametrize("seed", range(20))
def test_the_shortest_set_is_enough_and_nearly_the_shortest(seed):
    """Compared with trying every set."""
    import random

    chance = random.Random(seed)
    names = "abcdef"
    rows = [{name: str(chance.randrange(2)) for name in names if chance.random() < 0.9} for _ in range(6)]

    def groups(chosen_names):
        return len({tuple(row.get(name) for name in chosen_names) for row in rows})

    found = shortest(rows)
    least = next(size for size in range(7) for some in combinations(names, size) if groups(some) == groups(names))
    assert groups(found) == groups(names)
    assert len(found) <= (least if least == 1 else least + 1)


def test_true_and_one_are_different_values():
    """And whole numbers and others, alone and in lists: each has an address of its own."""
    two = [entry("a", model={"mask": True}), entry("b", model={"mask": 1})]
    assert differences(two) == {"a": {"model.mask": True}, "b": {"model.mask": 1}}
    first = {"one": True, "list": [True, 2], "whole": 1, "same": [1, 2.0]}
    second = {"one": 1, "list": [1, 2], "whole": 1.0, "same": [1, 2.0]}
    assert [*differing(first, second)] == ["list", "one", "whole"]
