"""Tasks by name, in files and in Python: arguments, mistakes, descriptions, rebuilding."""

import gc
import weakref
from pathlib import Path
from typing import Literal

import pytest
import torch

from anchorlab import tasks
from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction, load_task, parse_task, register_task, task, task_description, task_names
from anchorlab.tasks.registry import _factories
from tests.tasks.examples import PLUS_FIVE, example


def test_names_and_descriptions() -> None:
    assert {"anchor/identity", "recall/noisy", "retrieval/minimal"} <= set(task_names())
    assert list(task_names()) == sorted(task_names())
    for name in task_names():
        one = task(name)
        assert one.name == name
        assert "\n" not in task_description(name) and len(task_description(name)) > 20
        assert all(task(name, **{key: value}) == one for key, value in tasks.task_arguments(name).items())


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("anchor/identity", {"length": "12", "items": "30,90", "anchors": "3,5"},
         {"length": 12, "items": (30, 90), "anchors": (3, 5)}),
        ("recall/noisy", {"alpha": "0.25", "triggers": "1, 43", "scored": "after_trigger", "length": "32"},
         {"alpha": 0.25, "triggers": (1, 43), "scored": "after_trigger", "length": 32}),
        ("retrieval/minimal", {"implicit_curriculum": "false", "frequencies": "1,0.5", "steps": "2"},
         {"implicit_curriculum": False, "frequencies": (1.0, 0.5), "steps": 2}),
    ],
)  # fmt: skip
def test_text_arguments_are_read(name: str, text: dict[str, str], same: dict[str, object]) -> None:
    assert task(name, **text) == task(name, **same) != task(name)


def asked(name, **arguments):
    return lambda: task(name, **arguments)


def read_back(data):
    return lambda: parse_task(data, at="run.task")


REFUSED = [
    (asked("anchor/identiy"), "^task: unknown task 'anchor/identiy'; did you mean 'anchor/identity'?"),
    (
        asked("mine/own_task.py"),
        "^task: 'mine/own_task.py' is Python code; name the task that it registers, and --import",
    ),
    (asked("zebra"), "^task: unknown task 'zebra'; known: anchor/classification, "),
    (asked("anchor/identity", lenght=9), r"^task\.lenght: unknown field 'lenght'; did you mean 'length'"),
    (asked("anchor/identity", length="nine"), r"^task\.length: .*valid integer.*'nine'"),
    (asked("anchor/identity", length=1), r"^task\.placement\.length: 1 is too short for `A x`; use at least 2"),
    (asked("anchor/identity", anchors="30"), r"^task\.anchors: anchor 30 is among the items"),
    (asked("anchor/identity", items="20"), r"^task\.items"),
    (asked("anchor/identity", modulus="1"), r"^task\.modulus"),
    (asked("recall/noisy", alpha="1.5"), r"^task\.alpha: input should be less than or equal to 1"),
    (asked("recall/noisy", family="anchor"), r"^task\.family: unknown field"),
    (asked("retrieval/minimal", steps=0), r"^task\.steps"),
    (asked(str(PLUS_FIVE), length=3), "takes no arguments"),
    (lambda: task_description("recall/nosy"), "did you mean 'recall/noisy'"),
    (lambda: tasks.task_arguments("recall/nosy"), "did you mean 'recall/noisy'"),
    (read_back({}), r"^run\.task\.family: is missing; known: anchor, "),
    (read_back({"family": "ancor"}), r"^run\.task\.family: unknown task family 'ancor'; did you mean 'anchor'"),
    (read_back({"family": "anchor", "vocabulary": {"items": [5, 3]}}), r"^run\.task\.vocabulary\.items: 5\.\.3"),
    (read_back({"family": "anchor", 3: 4}), r"^run\.task: has a field name that is not text"),
    (read_back([]), r"^run\.task: should hold a task's fields"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_unknown_names_bad_arguments_and_damaged_data_are_named(build, message):
    with pytest.raises(SpecError, match=message):
        build()


def test_registering() -> None:
    @register_task("test/shift")
    def shift(amount: int = 1) -> AnchorFunction:
        """The token after the anchor, moved by a constant amount.

        More words.
        """
        return AnchorFunction(operations={3: f"+{amount}"})

    try:
        assert task("test/shift", amount="7").operations[3].steps == (("+", 7),)
        assert task("test/shift").name == "test/shift"
        assert task_description("test/shift") == "The token after the anchor, moved by a constant amount."
        assert tasks.task_arguments("test/shift") == {"amount": 1}
        assert parse_task(task("test/shift").model_dump(mode="json")) == task("test/shift")
        with pytest.raises(ValueError, match="already registered"):
            register_task("test/shift")(shift)
    finally:
        del _factories["test/shift"]


def test_duplicates_and_factories_without_docstring_are_refused() -> None:
    with pytest.raises(ValueError, match="docstring"):
        register_task("test/silent")(lambda: AnchorFunction())

    class Twin(AnchorFunction):
        family: Literal["anchor"] = "anchor"

    with pytest.raises(ValueError, match="already registered"):
        tasks.task_family("anchor")(Twin)
    with pytest.raises(ValueError, match="must have the default"):
        tasks.task_family("twin")(Twin)


def test_tables_kept_for_sampling_are_no_part_of_the_value() -> None:
    for name in task_names():
        used = task(name)
        fresh = type(used).parse(used.model_dump(mode="json"))
        assert fresh is not used
        used.render(used.sample(used.splits[0], 2, 0).inputs)
        assert used == fresh and fresh == used and hash(used) == hash(fresh)
        assert used.model_dump() == fresh.model_dump()


def test_a_task_is_built_and_read_back_once_while_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    @register_task("test/counted")
    def counted(amount: int = 1, texts: tuple[str, ...] = ()) -> AnchorFunction:
        """A task that counts how often it is built."""
        built.append(amount)
        return AnchorFunction(operations={3: f"+{amount}"})

    try:
        first = task("test/counted", amount=2)
        assert task("test/counted", amount="2") is first
        assert built == [2]
        assert task("test/counted", amount=3) != first
        assert task("test/counted", amount=2, texts=("a",)) is not first
        assert built == [2, 3, 2]
    finally:
        del _factories["test/counted"]
    proofs: list[object] = []
    monkeypatch.setattr(
        "anchorlab.tasks.anchor.function.prove_coverage", lambda reader, drawings: proofs.append(reader)
    )
    data = AnchorFunction(operations={3: "+17"}, name="read back").model_dump(mode="json")
    proofs.clear()
    first, again = parse_task(data), parse_task(dict(data))
    assert again is first
    assert len(proofs) == 1
    other = parse_task({**data, "operations": {"3": "+18"}})
    assert other.operations[3].steps == (("+", 18),)
    assert len(proofs) == 2
    names = [f"let go {index}" for index in range(20)]
    data = AnchorFunction().model_dump(mode="json")
    gone = [weakref.ref(parse_task({**data, "name": name})) for name in names]
    gc.collect()
    assert gone[0]() is None


# New anchor functions, declared in a file and in Python.
def test_the_file_and_the_python_example_are_one_task() -> None:
    source = PLUS_FIVE.with_suffix(".py").read_text()
    scope: dict[str, object] = {"__name__": "example"}
    exec(compile(source, "plus_five.py", "exec"), scope)  # the example of the documentation
    declared = load_task(PLUS_FIVE)
    assert declared == scope["plus_five"] == task(str(PLUS_FIVE))
    assert declared.name == "plus_five"
    lines = [line for line in source.split("if __name__")[0].splitlines() if line.strip() and '"""' not in line]
    assert len(lines) < 10
    assert parse_task(declared.model_dump(mode="json")) == declared


def test_plus_five_adds_five_with_and_without_a_byte_order_mark(tmp_path) -> None:
    declared = load_task(PLUS_FIVE)
    assert isinstance(declared, AnchorFunction) and declared.proof().holds
    batch = declared.sample("test", 2000, 0)
    assert torch.equal(batch.answers[:, 0], batch.latents["keys"][:, 0] + 5)
    shown = declared.render(torch.tensor([[43, 33, 30, 3, 20, 89, 44, 24, 56]]))[0]
    assert shown.trace == ("anchor 3 at position 3", "key 20 at position 4", "A(x) = 25 (+5)")
    assert [token.role for token in shown.tokens[2:6]] == ["noise", "anchor", "key", "noise"]
    assert (shown.answer, shown.split) == ("25", "train")
    (tmp_path / "plus_five.toml").write_bytes(b"\xef\xbb\xbf" + PLUS_FIVE.read_bytes())
    assert load_task(tmp_path / "plus_five.toml") == load_task(PLUS_FIVE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.toml: declares no task; give its parts, such as rules = "),
        ('name = "mine"', "bad.toml: declares no task"),
        ('[operations]\n3 = "5"', "bad.toml: operations.3: cannot read '5'"),
        ("[placement]\nlenght = 9", "bad.toml: placement.lenght: unknown field 'lenght'"),
        ("[placements]\nlength = 9", "bad.toml: placements: unknown field 'placements'; did you mean 'placement'"),
        ("[vocabulary]\nanchors = [30]", "bad.toml: vocabulary.anchors: anchor 30"),
        ('family = "anchors"', "bad.toml: family: unknown task family 'anchors'; did you mean 'anchor'"),
        ("family = 3", "bad.toml: family: should be text"),
        ("[operations", "bad.toml: cannot be read as TOML"),
        ("scoring = 3", "bad.toml: scoring"),
        ('family = "recall"\nalpha = 2', "bad.toml: alpha: input should be less than or equal to 1"),
    ],
)
def test_a_bad_field_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        load_task(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_files_that_cannot_be_read_and_one_of_another_family(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name, message in (("none.toml", "there is no file"), ("", "cannot be read"), ("bytes.toml", "cannot be read")):
        with pytest.raises(SpecError, match=message):
            load_task(tmp_path / name)
    path = tmp_path / "mine.toml"
    path.write_text('family = "recall"\nlength = 32\n')
    assert load_task(path) == task("recall/noisy", length=32).replace(name="mine")


EXAMPLES = sorted(PLUS_FIVE.parent.glob("*.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_sound(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 30
    one = example(path.stem)
    assert one.proof().holds
    for index, split in enumerate(one.splits):
        inputs = one.sample(split, 2000, 0).inputs
        assert (one.split_of(inputs) == index).all()


def test_examples_mean_what_they_say_and_a_trace_names_the_operation_of_a_pair() -> None:
    """Worked out from the tokens by hand-written readings of each example's comment."""
    agreement = example("agreement").sample("test", 500, 0)
    for tokens, answer in zip(agreement.inputs.tolist(), agreement.answers[:, 0].tolist(), strict=True):
        article = next(token for token in tokens if token in (1, 2))
        assert answer == tokens[tokens.index(article) + 1] + {1: 100, 2: 190}[article]
    negation = example("negation").sample("test on task", 500, 0)
    for tokens, answer in zip(negation.inputs.tolist(), negation.answers[:, 0].tolist(), strict=True):
        assert tokens[tokens.index(4) + 1] == 2 and answer == tokens[tokens.index(4) + 2] + 5
    pronoun = example("pronoun").sample("test", 500, 0)
    for tokens, answer in zip(pronoun.inputs.tolist(), pronoun.answers[:, 0].tolist(), strict=True):
        assert answer == tokens[tokens.index({3: 1, 4: 2}[tokens[-1]]) + 1]
    shown = example("negation").render(torch.tensor([[65, 4, 2, 65, 36, 91, 64, 86, 27]]))[0]
    assert shown.trace[-1] == "B(A(x)) = 70 (+5)"
