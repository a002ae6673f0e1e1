"""Processes of tests, forked in milliseconds from a server that has imported what they need and has done nothing else.

Each process of pytest has one server, whichever test starts it first, so it imports what all tests need. A process that
has trained, or has read a table with polars, cannot be forked.

Trainings with several workers fork them from it, too, as `fork_workers` says. Those of the terminal, and of
`tests.engine.kills`, start each with an interpreter of its own, as users' trainings do.
"""

import multiprocessing
import os
from contextlib import nullcontext
from multiprocessing import forkserver
from multiprocessing.connection import wait

from anchorlab.engine import local

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "tests.one_thread",  # first, before anything computes
        "loky.process_executor",
        "tests.runs.tiny_trainer",
        "anchorlab.engine",
        "anchorlab.report.browse",
        "anchorlab.studies",
        "anchorlab.cli.studies.browse",
        "anchorlab.cli.studies.claims",
        *(f"anchorlab.cli.runs.{name}" for name in ("check", "list", "remove", "show")),
        "polars._utils.parquet",
        "rich._emoji_codes",
        "safetensors.torch",
        "torch._dynamo",  # which torch.func.vmap imports
    ]
)


_begin = local._begin


def begin_forked(parent: int) -> None:
    """Prepare a forked worker, whose parent for the system is the server, not the process that asked for it."""
    local._exit_with = lambda parent: (wait([multiprocessing.parent_process().sentinel]), os._exit(1))
    _begin(parent)


def fork_workers() -> None:
    """Fork the workers of this process, without ignoring interrupts: the server would inherit that from the first."""
    local._begin = begin_forked
    local._context, local._interrupts_ignored = processes, nullcontext


def fork_workers_from_the_same_server() -> None:
    """Do the same in a process that the server has forked, which would start a server of its own."""
    forkserver._forkserver.ensure_running = lambda: None
    fork_workers()
