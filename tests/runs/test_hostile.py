"""A store from a stranger harms nothing outside its folder; each command on it ends soon, with one line of error."""

import contextlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import traceback

import pytest

from anchorlab.plain import parse_json
from tests.hostile.attacks import ATTACKS, attack
from tests.hostile.store import (
    COMMANDS,
    MORE_COMMANDS,
    SECRET,
    opened,
    prepare,
    sentinels,
    signs_that_a_terminal_obeys,
    snapshot,
)
from tests.processes import processes

pytestmark = pytest.mark.nightly

SECONDS = 60  # for all commands, which take about one on an idle machine; a pipe would be waited for without end
MEGABYTES = 400


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("prepared") / "store"
    process = processes.Process(target=prepare, args=(root,))
    process.start()
    process.join()
    assert process.exitcode == 0
    return root


@pytest.fixture
def place(tmp_path, prepared):
    """A store, and next to it a folder that nothing may touch."""
    shutil.copytree(prepared, tmp_path / "store")
    sentinels(tmp_path / "outside", tmp_path / "store")
    return tmp_path / "store", tmp_path / "outside"


def outcomes(root, outside, commands):
    """Return the exit code of each command, what it says, and whether it changed anything outside.

    All of them run in one process of their own, which must end in time and within memory.
    """
    report = root.parent / "report"
    report.write_text("")
    process = processes.Process(target=run_all, args=(root, outside, commands, report))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        pytest.fail(f"the command after these does not end: {report.read_text()}")
    found = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(found) == len(commands) and all(one.pop() < MEGABYTES for one in found)
    return found


def run_all(root, outside, commands, report):
    os.fsync = lambda descriptor: None  # no power is cut here
    os.environ["NO_COLOR"] = "1"
    untouched, before = snapshot(outside), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for command in commands:
        out, err, code = io.StringIO(), io.StringIO(), 99
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = opened(root, command)
            except (Exception, SystemExit):  # noqa: BLE001 - the test says so
                traceback.print_exc()
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        said = [command, code, out.getvalue(), err.getvalue(), snapshot(outside) == untouched, taken]
        with report.open("a") as file:
            print(json.dumps(said), file=file)


@pytest.mark.slow
def test_the_prepared_store_is_whole(place):
    commands = [*MORE_COMMANDS, *COMMANDS]
    found = outcomes(*place, commands)
    assert [(command, code, err, untouched) for command, code, _, err, untouched in found] == [
        (list(command), 0, "", True) for command in commands
    ]
    (checked,) = (out for command, _, out, _, _ in found if command == ["runs", "check"])
    assert checked.startswith("3 runs, all files as they were written, 1 of them unfinished")


@pytest.mark.parametrize("string", ["a" * 3_000_000, r"\"" * 1_500_000], ids=["plain", "escaped"])
@pytest.mark.parametrize("end", ['"]', ""], ids=["ended", "cut"])
def test_a_long_string_among_many_brackets_takes_little_memory(string, end):
    """In a process of its own, since the peak of its memory is that of the largest reading so far."""
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_a_strangers_store_harms_nothing(place, name):
    root, outside = place
    before, around = snapshot(root), snapshot(outside)
    done = attack(name, root, outside)
    assert snapshot(root) != before and snapshot(outside) == around, "the attack changes the store, and nothing else"
    found = outcomes(root, outside, [done.by, *(one for one in COMMANDS if one != done.by)])
    for command, code, out, err, untouched in found:
        assert code in (0, 2), f"{command}: {code} {out} {err}"
        assert len(err.splitlines()) <= 1, f"{command}: {err}"
        assert (code == 2) <= bool(err or "kept:" in out), command
        assert SECRET not in out + err and not signs_that_a_terminal_obeys(out + err), command
        assert untouched, command
    _, code, _, err, _ = found[0]
    assert code == (2 if done.told else 0) and done.told in err, f"{code} {err}"
