"""Attacks: what a stranger who sends a store may have changed in it.

    prepare(root); sentinels(outside, root); attack("spec: 4 GB", root, outside)

`outside` is a folder next to the store, which no command on the store may read, change or add to.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.changes import (
    CLAIM,
    LOOP,
    TOO_SHORT,
    Change,
    another_journal,
    claimed,
    deep,
    from_the_future,
    hard_linked,
    huge,
    in_index,
    json_of,
    linked,
    listing,
    odd_state,
    of_run,
    of_spec,
    pipe,
    place,
    state_naming,
    text,
    without_index,
)
from tests.hostile.store import FINDINGS, TRAIN


@dataclass(frozen=True)
class Attack:
    """A change of a prepared store.

    Fields
        make: does it, given the store's folder and the one outside
        told: words in the line of error of `by`, which exits with 2; if they are empty, `by` succeeds
        by: the command that runs first
    """

    make: Change
    told: str = ""
    by: tuple[str, ...] = ("runs", "check")


def attack(name: str, root: Path, outside: Path) -> Attack:
    """Change a prepared store, and return the attack."""
    ATTACKS[name].make(root, outside)
    return ATTACKS[name]


CLAIMS = ("claims", "--counts", "--measured")
CHECKPOINT = "checkpoints/step-00000002.safetensors"
LINK = "is a link, which a store may not hold"
NEITHER = "is neither a file nor a folder"
ALTERED = "altered after it was written"
NO_FILE = "no file of a run"
TOO_LARGE = "larger than"

CURVE = {
    **{"kind": "lines", "title": "t", "caption": "c", "x_label": "x", "y_label": "y"},
    "lines": [{"label": "\x1b]0;mine\x07", "x": [1, 2], "mean": [1, 2]}],
}
CIRCUIT = {
    **{"kind": "circuits", "title": "t", "caption": "c"},
    "panels": [{"title": "p", "roles": ["key"], "layers": 10**9, "arrows": []}],
}


def figures(*given: dict[str, object]) -> Change:
    """A change of the findings, which then have these figures and no checksum."""

    def make(root, outside):
        path = place(root, str(FINDINGS))
        data = json.loads(path.read_text())
        del data["checksum"]
        path.write_text(json.dumps({**data, "figures": given}))

    return make


ATTACKS: dict[str, Attack] = {
    "manifest: a file above": Attack(listing("../../outside/secret"), NO_FILE),
    "manifest: an absolute file": Attack(listing("OUTSIDE/secret"), NO_FILE),
    "manifest: nested deeply": Attack(text("RUN/manifest.json", deep("files")), "nested"),
    "manifest: no files": Attack(json_of("RUN/manifest.json", lambda one: one.update({"files": 3})), "lists no files"),
    "manifest: a size of text": Attack(
        json_of("RUN/manifest.json", lambda one: one["files"].update({"spec.json": {"size": "1", "sha256": "0"}})),
        "without its size",
    ),
    "spec: nested deeply": Attack(of_run(lambda run: (run / "spec.json").write_bytes(deep("spec"))), "nested"),
    "spec: another kind": Attack(of_spec(spec=[1]), "another version"),
    "spec: environments of text": Attack(of_spec(environments=["x"]), "computed"),
    "spec: a label with signs for a terminal": Attack(of_spec(label="\x1b]0;owned\x07\x1b[2J\x9b31m")),
    "spec: 4 GB": Attack(huge("RUN/spec.json"), TOO_LARGE),
    "metrics: no table": Attack(
        of_run(lambda run: (run / "metrics.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")), "no table of metrics"
    ),
    "metrics: other columns": Attack(
        of_run(lambda run: pq.write_table(pa.table({"value": [1]}), run / "metrics.parquet")), "other columns"
    ),
    "checkpoint: shorter than it says": Attack(
        of_run(lambda run: (run / CHECKPOINT).write_bytes(TOO_SHORT)), "no file of tensors"
    ),
    "checkpoint: a link to the same content": Attack(linked(f"RUN/{CHECKPOINT}", f"run/{CHECKPOINT}"), LINK),
    "run: a link": Attack(linked("RUN", "run"), LINK),
    "run: a link to nothing": Attack(linked("RUN", "nothing"), LINK),
    "run: linked checkpoints": Attack(linked("RUN/checkpoints", "folder"), LINK),
    **{
        f"run: a linked {name}": Attack(linked(f"RUN/{name}", name), LINK)
        for name in ("spec.json", "manifest.json", "metrics.parquet", "lock")
    },
    **{
        f"run: a device without end as {name}": Attack(linked(f"RUN/{name}", "/dev/zero"), LINK)
        for name in ("spec.json", "manifest.json")
    },
    **{
        f"run: a pipe as {name}": Attack(pipe(f"RUN/{name}"), NEITHER)
        for name in ("spec.json", "manifest.json", "metrics.parquet", "lock")
    },
    "unfinished: a linked lock": Attack(linked("BEGUN/lock", "lock"), LINK),
    "unfinished: a lock with another name": Attack(hard_linked("BEGUN/lock", "lock")),
    "unfinished: a linked state": Attack(linked("BEGUN/state", "folder"), LINK),
    "unfinished: a linked chunk": Attack(linked("BEGUN/state/chunk-0001.2", "folder"), LINK),
    "unfinished: linked notes": Attack(linked("BEGUN/state/notes", "."), LINK),
    "unfinished: a linked claim": Attack(linked(CLAIM, "claim.json"), LINK),
    "unfinished: a pipe as claim": Attack(pipe(CLAIM), NEITHER),
    "unfinished: a pipe as plan": Attack(pipe("BEGUN/state/plan.json"), NEITHER),
    "unfinished: a plan nested deeply": Attack(text("BEGUN/state/plan.json", deep("plan")), "nested"),
    "unfinished: a chunk of an odd number": Attack(
        lambda root, outside: place(root, "BEGUN/state").joinpath("chunk-0001.²").mkdir()
    ),
    "unfinished: a state shorter than it says": Attack(odd_state(TOO_SHORT), "no file of tensors"),
    "unfinished: a state that names a file above": Attack(
        odd_state(state_naming("step-00000002./../../../../../outside/secret")), "no chunk has", TRAIN
    ),
    "claim: of the future": Attack(from_the_future, by=TRAIN),
    "claim: for ever": Attack(claimed(lease=1e18), by=TRAIN),
    "claim: other fields": Attack(claimed(token=None, process=None, colour="red"), by=TRAIN),
    "claim: without a lease": Attack(claimed(lease=None), by=TRAIN),
    "claim: no process": Attack(claimed(process="../../etc/passwd"), by=TRAIN),
    "claim: nested deeply": Attack(text(CLAIM, deep("token")), by=TRAIN),
    "claim: of another machine": Attack(claimed(), "in use by process 1 on h", TRAIN),
    "index: a link": Attack(linked("index", "folder"), LINK, ("runs",)),
    "index: a linked file": Attack(linked("index/runs.sqlite", "own.sqlite"), LINK, ("runs",)),
    "index: a pipe": Attack(pipe("index/runs.sqlite"), NEITHER, ("runs",)),
    "index: a linked lock": Attack(without_index(linked("index/lock", "lock"))),
    "index: another name": Attack(hard_linked("index/runs.sqlite", "own.sqlite")),
    "index: a journal that names a file outside": Attack(another_journal),
    "index: a linked journal": Attack(linked("index/runs.sqlite-journal", "secret")),
    "index: a linked log": Attack(linked("index/runs.sqlite-wal", "secret")),
    "index: a linked partial file": Attack(without_index(linked("index/.0123.tmp", "folder"))),
    "index: a view without end": Attack(
        in_index("DROP TABLE runs", f"CREATE VIEW runs AS {LOOP} SELECT i, 1, 1, 'x', 1, 1, '{{}}', 1, 1 FROM n")
    ),
    "index: a trigger": Attack(
        in_index("CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM parts; END", "UPDATE runs SET crc = 0")
    ),
    "index: labels of bytes": Attack(in_index("UPDATE runs SET label = x'1b5b'")),
    "studies: a link": Attack(linked("studies", "folder"), LINK),
    "studies: a linked profile": Attack(linked("studies/own-hostile/quick", "folder"), LINK, CLAIMS),
    "studies: linked findings": Attack(linked(str(FINDINGS), "secret"), LINK, CLAIMS),
    "studies: a pipe as findings": Attack(pipe(str(FINDINGS)), NEITHER, CLAIMS),
    "studies: a pipe as record": Attack(
        pipe(str(FINDINGS.with_name("runs.json"))), "damaged", ("runs", "prune", "orphans")
    ),
    "studies: findings nested deeply": Attack(text(str(FINDINGS), b"[" * 100_000 + b"]" * 100_000), "damaged", CLAIMS),
    "studies: findings of 4 GB": Attack(huge(str(FINDINGS)), TOO_LARGE, CLAIMS),
    "studies: an axis without end": Attack(figures({**CURVE, "y_range": [0, "Infinity"]}), "damaged", CLAIMS),
    "studies: a circuit of a billion layers": Attack(figures(CIRCUIT), "damaged", CLAIMS),
    "studies: a curve named by escapes": Attack(figures(CURVE), by=("report",)),
    "workers: a link": Attack(linked("workers", "folder"), LINK),
    "answers: a link": Attack(linked("answers", "folder"), LINK),
    "left: a linked run that was removed": Attack(linked(".removed-0123", "folder")),
    "left: a link to nothing": Attack(linked(".removed-0123", "nothing")),
}
