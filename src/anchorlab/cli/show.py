"""`anchorlab show`."""

from rich.text import Text

from anchorlab.cli.options import Fields, read_task
from anchorlab.cli.output import console, print_json
from anchorlab.tasks.task import Example, example_data

STYLES = {
    "anchor": "bold white on dark_orange3",
    "key": "bold white on blue3",
    "trigger": "bold white on dark_orange3",
    "output": "bold white on blue3",
    "query": "bold white on dark_magenta",
    "noise": "dim",
}
"""How each part that a token can play looks on a terminal; the same words colour the tokens of a page."""


def show(
    task: str,
    /,
    *,
    n: int = 3,
    split: str | None = None,
    seed: int = 0,
    options: Fields = None,
    json: bool = False,
) -> None:
    """Show examples of a task, with the oracle's trace in colour.

    Parameters
    ----------
    task
        A name from `anchorlab tasks`, or a TOML file that declares an anchor function.
    n
        How many examples of each split.
    split
        Only this split.
    seed
        The seed they are drawn from.
    options
        Options of the task, such as `--task.length 12`.
    json
        As JSON, for scripts.
    """
    chosen = read_task(task, options)
    found = [
        example
        for name in ([split] if split else chosen.splits)
        for example in chosen.render(chosen.sample(name, n, seed).inputs)
    ]
    if json:
        print_json([example_data(example) for example in found])
        return
    for example in found:
        console.print(_coloured(example))


def _coloured(example: Example) -> Text:
    text = Text(f"{example.split:>6}  ", style="dim")
    for token in example.tokens:
        text.append(token.text, style=STYLES.get(token.role, ""))
        text.append(" ", style="")
    text.append("→ ", style="dim")
    text.append(example.answer, style="bold green")
    for step in example.trace:
        text.append(f"\n          {step}", style="italic cyan")
    return text
