"""Run a page's blocks one after the other, as a reader does; a program of its own, which needs Python alone.

It reads a list of `[language, text]` as JSON. Blocks of Python share their names. A line of the shell runs the program
`anchorlab`, with RUN and OTHER in place of the addresses of `run` and `other`, or of the store's newest run. It writes
as JSON what each command said, as `[words, output]`, and the addresses that it put in place.
"""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("anchorlab")


def anchorlab(*words: str) -> str:
    """What the program prints. Errors: ends this program if it fails, with its last words."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"anchorlab {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def addresses(names: dict[str, object]) -> dict[str, str]:
    """What stands for RUN and OTHER."""
    found = {name.upper(): names[name].run.address for name in ("run", "other") if name in names}
    if "RUN" not in found:
        found["RUN"] = json.loads(anchorlab("runs", "--json"))[0]["run"]
    return found


def main() -> None:
    blocks, report = sys.argv[1:]
    names: dict[str, object] = {"__name__": "__main__"}
    said, named = [], {}
    for at, (language, content) in enumerate(json.loads(Path(blocks).read_text("utf-8"))):
        if language == "python":
            exec(compile(content, f"block {at}", "exec"), names)
            continue
        for words in content:
            if {"RUN", "OTHER"} & set(words):
                named = addresses(names)
            said.append([words, anchorlab(*(named.get(word, word) for word in words))])
    Path(report).write_text(json.dumps([said, named]), "utf-8")


if __name__ == "__main__":
    main()
