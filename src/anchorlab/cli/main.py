"""The entry of the command line: commands are imported when they are called, errors are one line and exit code 2."""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError

from anchorlab import __version__
from anchorlab.cli.fields import fold
from anchorlab.errors import AnchorlabError

app = App(
    name="anchorlab",
    help="A laboratory of benchmark functions for studying how language models learn and compute.",
    help_format="plaintext",  # reading it as Markdown would cost a third of the start-up
    version=__version__,
    suppress_keyboard_interrupt=False,
)
commands = {
    "tasks": "List the tasks there are.",
    "show": "Show examples of a task, with the oracle's trace.",
    "check": "Prove that the splits of a task are separate.",
    "export": "Write a task as data, with a card that says what it is.",
    "table": "Make the bigram table of a text, for noisy recall over its characters.",
    "train": "Train one model per seed on a task, and keep the run.",
    "studies": "List the studies there are.",
    "study": "Run studies: train what is missing, analyse, check the claims, write the report.",
    "claims": "List every claim: the paper's value, ours, the verdict.",
    "inspect": "Look inside a finished run: what each attention head does.",
    "truncate": "Cut a run's matrices to parts of their rank, and name the best cut.",
    "memory": "Read what a run's weights join: tokens with tokens, positions with positions.",
    "circuit": "Find the attention paths that suffice for a run's task.",
    "report": "Write one page from all findings of the store.",
}
for order, (name, text) in enumerate(commands.items()):
    app.command(f"anchorlab.cli.{name}:{name}", name=name, help=text, sort_key=order)
runs = App(name="runs", help="List, show, check or remove the runs of the store.", sort_key=len(commands))
for name, text in {
    "list": "List all runs; this is what `anchorlab runs` alone does.",
    "show": "Show what a run is, and its last metrics.",
    "check": "Read every file of the runs and name damaged ones.",
    "remove": "Remove a run.",
}.items():
    runs.command(f"anchorlab.cli.runs:{name}_", name=name, help=text)
app.command(runs)
app.register_install_completion_command(help="Install completion for this shell (bash, zsh or fish).")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 2 for anything the user can mend, told in one line.

    A command that answers by its exit code, as `check` does, returns it.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows a question mark
    try:
        tokens = fold(sys.argv[1:] if arguments is None else arguments)
        if tokens[:1] == ["runs"] and (len(tokens) == 1 or tokens[1].partition("=")[0] in _OF_LIST):
            tokens.insert(1, "list")
        code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except AnchorlabError as error:
        return _complain(str(error))
    except MissingArgumentError as error:
        return _complain(
            f"{error.argument.name if error.argument else 'an argument'}: has no value; `--help` tells more"
        )
    except UnusedCliTokensError as error:
        return _complain(f"{' '.join(error.unused_tokens or ())!r} is not expected there; `--help` tells more")
    except CycloptsError as error:
        return _complain(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return _complain(f"{error.filename or 'system'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return _complain(f"out of memory; ask for less at once ({str(error).splitlines()[0]:.100})")
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to go on from the last state", 130)
    return code if isinstance(code, int) else 0


_OF_LIST = ("--json", "--no-json", "--store")


def _complain(text: str, code: int = 2) -> int:
    print(f"anchorlab: {' '.join(text.split())}", file=sys.stderr)
    return code
