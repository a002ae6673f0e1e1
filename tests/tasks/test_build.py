"""New anchor functions, declared in a file and in Python."""

from pathlib import Path

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction, load_task, parse_task, task
from tests.tasks.examples import PLUS_FIVE, example


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


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path) -> None:
    (tmp_path / "plus_five.toml").write_bytes(b"\xef\xbb\xbf" + PLUS_FIVE.read_bytes())
    assert load_task(tmp_path / "plus_five.toml") == load_task(PLUS_FIVE)


def test_plus_five_adds_five() -> None:
    declared = load_task(PLUS_FIVE)
    assert isinstance(declared, AnchorFunction) and declared.proof().holds
    batch = declared.sample("test", 2000, 0)
    assert torch.equal(batch.answers[:, 0], batch.latents["keys"][:, 0] + 5)
    shown = declared.render(torch.tensor([[43, 33, 30, 3, 20, 89, 44, 24, 56]]))[0]
    assert shown.trace == ("anchor 3 at position 3", "key 20 at position 4", "A(x) = 25 (+5)")
    assert [token.role for token in shown.tokens[2:6]] == ["noise", "anchor", "key", "noise"]
    assert (shown.answer, shown.split) == ("25", "train")


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


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no file"):
        load_task(tmp_path / "none.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_task(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read"):
        load_task(tmp_path / "bytes.toml")
    with pytest.raises(SpecError, match="takes no arguments"):
        task(str(PLUS_FIVE), length=3)


def test_other_families_can_be_declared_too(tmp_path: Path) -> None:
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


def test_examples_mean_what_they_say() -> None:
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


def test_a_trace_names_the_operation_of_a_pair() -> None:
    shown = example("negation").render(torch.tensor([[65, 4, 2, 65, 36, 91, 64, 86, 27]]))[0]
    assert shown.trace[-1] == "B(A(x)) = 70 (+5)"
