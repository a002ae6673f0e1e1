"""Findings made by hand: small, with one of everything, and with known patterns."""

from dataclasses import replace

import numpy as np

from anchorlab.findings import Claim, Findings, LineFigure, Map, MapFigure, Provenance, Reference, Table, grid, line
from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer import AttentionView

PROVENANCE = Provenance("quick", "0..2", "2 CPU cores", "0123456789abcdef", "2.6.0", 141.0)


def one_hot_view(steps: int = 3, examples: int = 2, layers: int = 2, heads: int = 3, length: int = 9) -> AttentionView:
    """A view in which the head's pattern is known: query q attends to key (q - head - step - example) mod (q + 1)."""
    pattern = np.zeros((1, steps, examples, layers, heads, length, length))
    for step, example, layer, head, query in np.ndindex(steps, examples, layers, heads, length):
        pattern[0, step, example, layer, head, query, (query - head - step - example) % (query + 1)] = 1 / (1 + layer)
    shown = [
        Example(
            tokens=tuple(
                Token(str(20 + 10 * example + at), "anchor" if at == 1 else "key" if at == 2 else "noise")
                for at in range(length)
            ),
            trace=("anchor at position 1", "key at position 2"),
            answer=str(22 + 10 * example),
            split="test",
        )
        for example in range(examples)
    ]
    predicted = [["99" if step == 0 else one.answer for one in shown] for step in range(steps)]
    return AttentionView.of("Shifts", shown, [100 * step for step in range(steps)], pattern, predicted=predicted)


def make_findings() -> Findings:
    """Small findings with one of everything."""
    claim = Claim("made/high", "It is high.", "nowhere, Fig 1", "about 1", "its height", (0.9, None))
    tokens = ("41", "3", "64")
    return Findings(
        study="made/by-hand",
        title="Made by hand",
        summary="Nothing was trained for this.",
        profile="quick",
        provenance=PROVENANCE,
        claims=(
            claim.judge(0.987654, "quick", "0.95 to 1 over 3 seeds"),
            replace(claim, id="made/low", band=(None, 0.5)).judge(0.75, "quick"),
            replace(claim, id="made/missing", band=(0.2, 0.3)).judge(None, "quick"),
            replace(claim, id="made/refuted", band=(2, None)).judge(1.5, "paper", paper_setting=True),
        ),
        figures=(
            LineFigure(
                "Height against size",
                "It rises.",
                "size",
                "height",
                (line("tall", [1, 2, 4], [[0.1, 0.5, 0.9], [0.3, 0.7, 1.0]]),),
                log_x=True,
                y_range=(0, 1),
                references=(Reference("guessing", 0.1),),
            ),
            MapFigure("A map", "It is diagonal.", ((Map("layer 0", grid(np.eye(3)), tokens, tokens),),)),
        ),
        tables=(Table("Heights", "One per seed.", ("seed", "height"), ((0, 0.123456), (1, None))),),
        views=(one_hot_view(),),
    )
