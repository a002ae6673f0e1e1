"""Compare studies with those of another checkout: what they train, say, find and draw.

    python -m tests.studies.compare OTHER_CHECKOUT [STUDY ...]

Compared are, for every profile, the labels and addresses of the experiments; the claims word for word; and of the smoke
profile, trained once with its controls, the values, verdicts, figures, tables and views. Exits with 1 and names what
differs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

SAID = """
import json, sys
from anchorlab.findings.statements import Statements
from anchorlab.studies import run_study, study
from pydantic import TypeAdapter

store, *names = sys.argv[1:]
for name in names:
    one = study(name)
    trained = {
        profile: [(each.label, each.cell.address) for each in one.experiments_of(profile)] for profile in one.profiles
    }
    found = {}
    if one.observe is None:
        found = json.loads(run_study(one, "smoke", store, workers=1, progress=False).to_json())
        del found["provenance"]
    notes = {key: each.note for key, each in one.profiles.items()}
    about = {"title": one.title, "summary": one.summary, "notes": notes}
    claims = TypeAdapter(Statements).dump_python(one.statements, mode="json")
    print(json.dumps({"study": name, "trained": trained, "about": about, "claims": claims, "smoke": found}))
"""


def said(checkout: Path, store: str, names: list[str]) -> list[dict]:
    """What a checkout's studies train, say and find."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SAID, store, *names]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=checkout)
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(old: object, new: object, at: str = "") -> list[str]:
    """Where two values differ, each with both."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [one for key in keys for one in differences(old.get(key), new.get(key), f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            one for place, both in enumerate(zip(old, new, strict=True)) for one in differences(*both, f"{at}[{place}]")
        ]
    return [] if old == new else [f"{at}: {old!r:.200} -> {new!r:.200}"]


def main() -> int:
    """Compare; 1 if anything differs."""
    from anchorlab.names import STUDIES

    other, *names = sys.argv[1:]
    names = names or list(STUDIES)
    with tempfile.TemporaryDirectory() as store:
        both = [said(checkout, store, names) for checkout in (Path(other), ROOT)]
    found = [one for old, new in zip(*both, strict=True) for one in differences(old, new, old["study"])]
    print("\n".join(found) if found else f"{len(names)} studies train, say, find and draw the same")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
