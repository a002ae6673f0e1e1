"""A store from a stranger harms nothing outside its folder, ends soon, and is told of in one line."""

import contextlib
import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import traceback

import pytest

from anchorlab.cli import main
from anchorlab.errors import AnchorlabError
from anchorlab.plain import parse_json
from anchorlab.runs import Store
from tests.hostile import (
    ATTACKS,
    BEGUN,
    FOLDER,
    PACKED,
    SECRET,
    UNFINISHED,
    attack,
    cell_of,
    prepare,
    sentinels,
    snapshot,
)
from tests.runs.tiny_trainer import train

SECONDS = 60  # for all commands, which take about one on an idle machine; a pipe would be waited for without end
MEGABYTES = 400

TRAIN = ("train",)
COMMANDS = [
    ("runs",),
    ("runs", "check"),
    *(("runs", "show", address) for address in (FOLDER, PACKED, BEGUN)),
    ("claims", "--counts", "--measured"),
    ("browse",),
    ("runs", "prune"),
    TRAIN,
    ("runs", "pack"),
    ("runs", "unpack"),
    *(("runs", "remove", address, "--yes") for address in (FOLDER, PACKED)),
    ("runs", "prune", "orphans", "unfinished", "damaged", "--yes"),
]


# A process that has read a table with polars cannot be forked: these are forked from one that has only imported things.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    ["anchorlab.engine", "torch._dynamo", "tests.runs.test_hostile", "anchorlab.report.browse", "anchorlab.studies"]
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("prepared") / "store"
    process = FRESH.Process(target=prepare, args=(root,))
    process.start()
    process.join()
    assert process.exitcode == 0
    return root


@pytest.fixture
def place(tmp_path, prepared):
    """A store, and beside it a folder that nothing may touch."""
    shutil.copytree(prepared, tmp_path / "store")
    sentinels(tmp_path / "outside")
    return tmp_path / "store", tmp_path / "outside"


def outcomes(root, outside, commands):
    """Return the exit code of each command, what it says, and whether it changed anything outside.

    All of them run in one process of their own, which must end in time and within memory.
    """
    report = root.parent / "report"
    report.write_text("")
    process = FRESH.Process(target=run_all, args=(root, outside, commands, report))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        pytest.fail(f"the command after these does not end: {report.read_text()}")
    found = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(found) == len(commands) and all(one.pop() < MEGABYTES for one in found)
    return found


def run_all(root, outside, commands, report):
    untouched, before = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for command in commands:
        code, out, err = called(root, command)
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        with report.open("a") as file:
            print(json.dumps([command, code, out, err, snapshot(outside) == untouched, taken]), file=file)


def called(root, command):
    """Return the exit code of a command in this process, and what it says; 99 for an error that is not told."""
    out, err = io.StringIO(), io.StringIO()
    os.environ["NO_COLOR"] = "1"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = resumed(root) if command == TRAIN else main([*command, "--store", str(root)])
        except (Exception, SystemExit):  # noqa: BLE001 - the test tells of it
            traceback.print_exc()
            code = 99
    return code, out.getvalue(), err.getvalue()


def resumed(root):
    """Train the unfinished run to its end; return the exit code, as the command line would."""
    try:
        train(Store(root), cell_of(UNFINISHED))
    except AnchorlabError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def test_the_prepared_store_is_whole(place):
    found = outcomes(*place, COMMANDS)
    assert [(code, err, untouched) for _, code, _, err, untouched in found] == [(0, "", True)] * len(COMMANDS)
    assert found[1][2].startswith("5 runs, all files as they were written, 1 of them unfinished")


@pytest.mark.parametrize("string", ["a" * 3_000_000, r"\"" * 1_500_000], ids=["plain", "escaped"])
@pytest.mark.parametrize("end", ['"]', ""], ids=["ended", "cut"])
def test_a_long_string_among_many_brackets_takes_little_memory(string, end):
    """In a process of its own: what the system gives to one that reads is what the largest reading took."""
    code = (
        "import resource, sys; from anchorlab.plain import parse_json; text = sys.stdin.buffer.read()\n"
        "def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "try: print(len(parse_json(text)[-1]))\n"
        "except ValueError: print('no JSON')\n"
        "print(used() - before)"
    )
    text = "[" + "[]," * 101 + '"' + string + end
    done = subprocess.run([sys.executable, "-c", code], input=text.encode(), capture_output=True, timeout=SECONDS)
    said, kilobytes = done.stdout.decode().splitlines()
    assert said == (str(len(json.loads(f'"{string}"'))) if end else "no JSON")
    assert int(kilobytes) < 30_000


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_nested_json_is_refused_in_every_encoding(encoding):
    """In UTF-16 the sign ∀ has a byte of a quote, behind which the brackets seem to lie in a string."""
    with pytest.raises(ValueError, match=r"nested|decode"):
        parse_json(('["∀", ' + "[" * 20_000 + "]" * 20_000 + ', "x"]').encode(encoding))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_strangers_store_harms_nothing(place, name):
    root, outside = place
    done = attack(name, root, outside)
    commands = [done.by, *(one for one in COMMANDS if one != done.by)]
    found = outcomes(root, outside, commands)
    for command, code, out, err, untouched in found:
        assert code in (0, 2), f"{command}: {code} {out} {err}"
        assert len(err.splitlines()) <= 1, f"{command}: {err}"
        assert (code == 2) <= bool(err or "kept:" in out), command
        assert SECRET not in out + err, command
        assert untouched, command
    if done.told:
        _, code, _, err, _ = found[0]
        assert code == 2 and re.search(re.escape(done.told), err), f"{code} {err}"
