"""The entry point of the command line. A command is imported when it is called; errors are one line and exit code 2."""

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter, UnusedCliTokensError

from anchorlab import __version__
from anchorlab.cli.options.complete import completion_words
from anchorlab.cli.options.fields import fold
from anchorlab.cli.removed import refuse_removed
from anchorlab.cli.terminal.signals import Terminated, ending_once
from anchorlab.errors import AnchorlabError, DivergedWarning, IncompleteError, is_out_of_memory
from anchorlab.printable import printable

_OF_GROUP = ("--help", "-h", "--version")  # options of `anchorlab runs` itself; all others belong to its list
_INCOMPLETE = 1
_INTERRUPTED, _TERMINATED = 130, 143  # 128 + SIGINT, 128 + SIGTERM

app = App(
    name="anchorlab",
    help="A laboratory of benchmark functions for studying how language models learn and compute.",
    help_format="plaintext",  # Markdown would add a third to the start-up time
    version=__version__,
    suppress_keyboard_interrupt=False,
)
commands = {
    "tour": ("inspect", "Look inside a trained model that comes with the package."),
    "tasks": ("tasks", "List the tasks that models can be trained on."),
    "models": ("tasks", "List the kinds of models, or the fields of one."),
    "show": ("tasks", "Show examples of a task and how their answers follow."),
    "check": ("tasks", "Check that the splits of a task are separate."),
    "export": ("tasks", "Export a task as data, or models with units to rank."),
    "table": ("tasks", "Count a text's character pairs, for recall/noisy."),
    "train": ("train", "Train one model per seed on a task, and keep the run."),
    "studies": ("studies", "List the studies: one for each figure or question."),
    "study": ("studies", "Run studies: train, check claims, write the report."),
    "sweep": ("studies", "Train a grid of experiments that a file declares."),
    "verify": ("studies", "Check the papers' claims in their own settings, within a budget."),
    "claims": ("studies", "List the papers' claims with our values and verdicts."),
    "inspect": ("inspect", "Measure what each attention head of a run does."),
    "look-at": ("inspect", "Measure what a language model's heads do on texts."),
    "truncate": ("inspect", "Find the best rank truncation of a run's matrices."),
    "memory": ("inspect", "Show which tokens or positions the weights associate."),
    "circuit": ("inspect", "Find the attention paths that suffice for the task."),
    "landscape": ("inspect", "Measure every subset of the heads: all circuits of a run."),
    "score": ("inspect", "Score rankings of units in models with known circuits."),
    "report": ("studies", "Write one HTML page with all findings in the store."),
    "browse": ("studies", "Write one page about the store: runs, curves, claims."),
}
"""For each command, the folder of the module that has its name, and its one-line help."""

for order, (name, (folder, text)) in enumerate(commands.items()):
    module = name.replace("-", "_")
    app.command(f"anchorlab.cli.{folder}.{module}:{module}", name=name, help=text, sort_key=order)
runs = App(name="runs", help="List, compare, check or remove the runs of the store.", sort_key=len(commands))
for name, (module, text) in {
    "list": ("list", "List the runs, as `anchorlab runs` does."),
    "show": ("show", "Show a run's specification and its last metrics."),
    "diff": ("diff", "Compare two runs: fields, versions and metrics."),
    "check": ("check", "Read every file of the runs and name the damaged ones."),
    "remove": ("remove", "Remove a run."),
    "prune": ("remove", "Remove runs that no findings need."),
    "export": ("export", "Write metrics as one table, or for TensorBoard."),
}.items():
    runs.command(f"anchorlab.cli.runs.{module}:{name}_", name=name, help=text)
app.command(runs)
app.meta.suppress_keyboard_interrupt = False  # not inherited from `app`


@app.meta.default
def launch(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    imports: Annotated[
        tuple[str, ...],
        Parameter(
            name="--import",
            negative="",
            show_default=False,
            group=Group("Your modules", sort_key=len(commands)),
            help="Python module that registers your tasks or models, such as `my_module`, in the current folder or on"
            " Python's path; may be given several times.",
        ),
    ] = (),
) -> object:
    """Import the user's modules before a command looks up any name, then run the command."""
    if imports:
        from anchorlab.engine.modules import import_modules

        import_modules(imports)
    tokens = list(words)
    refuse_removed(tokens)
    if tokens[:1] == ["runs"] and (len(tokens) == 1 or (tokens[1].startswith("-") and tokens[1] not in _OF_GROUP)):
        tokens.insert(1, "list")
    return app(tokens, exit_on_error=False, print_error=False, result_action="return_value")


def explain(command: App, words: Sequence[str]) -> None:
    """Give the command that the words name the full text of its function's docstring, without the source's line breaks.

    The texts of its parameters lose their line breaks, too.
    """
    for word in words:
        if command.default_command is not None or word not in command:
            break
        command = command[word]
    if command is not app and command.default_command is not None:
        text = cleandoc(command.default_command.__doc__ or "").partition("\n\nParameters\n")[0]
        command.help = _joined(text)
        command.help_formatter = _show_panel


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _show_panel(console: Any, options: Any, panel: Any) -> None:
    from cyclopts.help import DefaultFormatter

    for entry in panel.entries:
        if entry.description is not None:
            text = entry.description.primary_renderable
            text.plain = _joined(text.plain)
    DefaultFormatter()(console, options, panel)


app.register_install_completion_command(help="Install completion for this shell (bash, zsh or fish).")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success; 1: part of a training failed and the rest is finished; 2: an error that the user can fix, printed
    in one line; 130: interrupted; 143: terminated. Commands such as `check` may return other codes.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode ✓ shows a question mark
    with warnings.catch_warnings(), ending_once():
        warnings.simplefilter("always", DivergedWarning)
        warnings.showwarning = partial(_warn, warnings.showwarning)
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        completing = arguments[:1] == ["__complete"]  # a shell asks, by a word that cyclopts reserves
        tokens = completion_words(arguments) if completing else fold(arguments)
        if not {"--help", "-h"}.isdisjoint(tokens):
            explain(app, tokens)
        entry = app if completing else app.meta  # at TAB no module is imported
        code = entry(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except IncompleteError as error:
        for line in error.lines:
            _complain(line)
        return _complain("everything else is finished; run the same command again to try these once more", _INCOMPLETE)
    except MissingArgumentError as error:
        return _complain(f"{error.argument.name if error.argument else 'an argument'}: has no value; see `--help`")
    except UnusedCliTokensError as error:
        return _complain(f"{' '.join(error.unused_tokens or ())!r} is not expected here; see `--help`")
    except (AnchorlabError, CycloptsError) as error:
        return _complain(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (OSError, MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            first = (str(error).splitlines() or ["no more could be had"])[0]
            return _complain(f"out of memory; reduce the size of the work ({first:.100})")
        if not isinstance(error, OSError):
            raise
        return _complain(f"{error.filename or 'system'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to continue from the last state", _INTERRUPTED)
    except Terminated:
        return _complain("terminated; run the same command again to continue from the last state", _TERMINATED)
    return code if isinstance(code, int) else 0


def _warn(otherwise: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Show a `DivergedWarning` in one line, like an error; others as Python does, with control characters escaped."""
    if issubclass(category, DivergedWarning):
        _complain(str(message))
    else:
        otherwise(printable(str(message), lines=True), category, *place)


def _complain(text: str, code: int = 2) -> int:
    print(f"anchorlab: {printable(' '.join(text.split()))}", file=sys.stderr)
    return code
