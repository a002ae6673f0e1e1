"""The entry of the command line: commands are imported when they are called, errors are one line and exit code 2."""

import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from anchorlab.errors import AnchorlabError

app = App(
    name="anchorlab",
    help="A laboratory of benchmark functions for studying how language models learn and compute.",
)
for name, text in {
    "tasks": "List the tasks there are.",
    "show": "Show examples of a task, with the oracle's trace.",
    "train": "Train a population of models on a task.",
    "studies": "List the studies there are.",
    "study": "Run a study: train what is missing, analyse, check the claims, write the report.",
    "claims": "List the claims checked so far: the paper's value, ours, the verdict.",
    "inspect": "Look inside a finished run: what each attention head does.",
    "report": "Write one page from all findings of the store.",
}.items():
    app.command(f"anchorlab.cli.{name}:{name}", name=name, help=text)
runs = App(name="runs", help="List, show, check or remove the runs of the store.")
for name, text in {
    "list": "List all runs.",
    "show": "Show what a run is, and its last metrics.",
    "check": "Read every file of the runs and name damaged ones.",
    "remove": "Remove a run.",
}.items():
    runs.command(f"anchorlab.cli.runs:{name}_", name=name, help=text)
app.command(runs)

_NESTED = re.compile(r"--(task|model|recipe|members)\.[^=]+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 2 for anything the user can mend, told in one line."""
    tokens = [_fold(token) for token in (sys.argv[1:] if arguments is None else arguments)]
    if tokens[:1] == ["runs"] and (len(tokens) == 1 or tokens[1] in ("--json", "--store")):
        tokens.insert(1, "list")
    try:
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except AnchorlabError as error:
        return _complain(str(error))
    except CycloptsError as error:
        return _complain(" ".join(str(error).split()))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to go on from the last state", 130)
    return 0


def _complain(text: str, code: int = 2) -> int:
    print(f"anchorlab: {text}", file=sys.stderr)
    return code


def _fold(token: str) -> str:
    """`--recipe.data.size` as `--recipe.data/size`: the parser of options takes one level of nesting."""
    match = _NESTED.match(token)
    if match is None:
        return token
    root, rest = match[0].split(".", 1)
    return f"{root}.{rest.replace('.', '/')}{token[match.end():]}"
