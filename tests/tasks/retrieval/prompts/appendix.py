"""The five examples of the paper's appendix A, as printed there: the prompt, the correct and the acceptable answers."""

import re
from pathlib import Path

_SECTIONS = re.split(r"^# ", (Path(__file__).parent / "appendix.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]


def _example(section: str) -> tuple[str, tuple[str, str, tuple[str, ...]]]:
    name, body = section.split("\n", 1)
    prompt, answers = body.rsplit("\nCorrect: ", 1)
    correct, acceptable = answers.strip().split("\nAcceptable: ")
    return name, (prompt, correct, tuple(acceptable.split(", ")))


APPENDIX = dict(map(_example, _SECTIONS))
"""Prompt, correct answer and acceptable answers by formulation."""
