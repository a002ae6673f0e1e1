"""`anchorlab show`."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from anchorlab.cli.options import shared
from anchorlab.cli.options.experiment import read_task
from anchorlab.cli.terminal.output import print_json, print_text
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.tasks import Example

_MOST = 10_000
STYLES = {
    "anchor": "bold white on dark_orange3",
    "key": "bold white on blue3",
    "trigger": "bold white on dark_orange3",
    "output": "bold white on blue3",
    "query": "bold white on dark_magenta",
    "noise": "dim",
}
"""The style of each role of a token on a terminal; pages colour tokens by the same roles."""


def show(
    task: shared.TaskName,
    /,
    *,
    n: shared.Count = 3,
    split: str | None = None,
    seed: int = 0,
    task_fields: shared.TaskFields = None,
    toml: shared.Flag = False,
    json: shared.Json = False,
) -> None:
    """Show examples of a task and how their answers follow, in colour.

    Parameters
    ----------
    n
        Number of examples per split.
    split
        Show only this split; by default all.
    seed
        Seed of the examples.
    toml
        Print the task itself in place of examples, as a file to copy and change.
    """
    from anchorlab.tasks import example_data
    from anchorlab.tasks.export.toml_text import toml_text

    if n > _MOST:
        raise SpecError("n", f"cannot show {n} examples", f"give at most {_MOST}")
    for option, given in (("json", json), ("split", split is not None)):
        if toml and given:
            raise SpecError(option, "cannot be combined with --toml", "leave out one of them")
    chosen = read_task(task, task_fields)
    if toml:
        print(toml_text(chosen), end="")
        return
    splits = chosen.splits if split is None else [split]
    found = {name: chosen.render(chosen.sample(name, n, seed).inputs) for name in splits}
    if json:
        print_json([{**example_data(example), "split": name} for name, some in found.items() for example in some])
        return
    for name, examples in found.items():
        for example in examples:
            print_text(_coloured(name, example))
    shown = [text for examples in found.values() for text in {example.text for example in examples}]
    if not chosen.separated and len(set(shown)) < len(shown):
        print_text("the splits differ in how sequences are drawn; that some are equal is chance, not a leak")


def _coloured(split: str, example: "Example") -> Group:
    tokens = Text()
    for token in example.tokens:
        tokens.append(token.text, style=STYLES.get(token.role, ""))
        tokens.append(example.separator)
    tokens.append("→ " if example.separator else " → ", style="dim").append(example.answer, style="bold green")
    trace = Text("\n".join(example.trace), style="italic cyan")
    return Group(Text(split, style="bold"), Padding(tokens, (0, 0, 0, 2)), Padding(trace, (0, 0, 1, 4)))
