"""The scores of heads whose patterns are made by hand, in a module that shows these patterns as a model would."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anchorlab.lens import best_source
from anchorlab.models.sites import Site, Tap, identity_tap
from anchorlab.papers.language.heads.scores import ScoredHeads, score_heads

LENGTH, BATCH = 12, 4

pytestmark = pytest.mark.untyped  # a hand-made module in place of a language model


def attends(keys: Sequence[int], share: float = 1.0) -> Tensor:
    """The pattern of a head whose query q gives a share to its key, and the rest to the first token."""
    pattern = torch.zeros(len(keys), len(keys))
    for query, key in enumerate(keys):
        pattern[query, min(key, query)] += share
        pattern[query, 0] += 1 - share
    return pattern


QUERIES = range(LENGTH)
SHIFT_BY_3 = attends([max(query - 3, 0) for query in QUERIES])
SELF = attends(list(QUERIES))
FIRST = attends([0] * LENGTH)
BROADCAST_FROM_4 = attends([4] * LENGTH, share=0.6)  # the rest is left at the first token
SINK = attends([4] * LENGTH, share=0.1)
UNIFORM = torch.ones(LENGTH, LENGTH).tril() / torch.arange(1, LENGTH + 1).unsqueeze(1)


class Shown(nn.Module):
    """A module whose heads have given patterns `[layer head query key]`, in every text."""

    def __init__(self, patterns: Tensor) -> None:
        super().__init__()
        self.patterns = patterns
        self.blocks = [SimpleNamespace(attn=SimpleNamespace(heads=patterns.shape[1])) for _ in patterns]
        axes = ("batch", "head", "query", "key")
        self.sites = {
            name: Site(name, axes) for name in map("blocks.{}.attn.hook_pattern".format, range(len(patterns)))
        }

    def forward(self, inputs: Tensor, positions: Tensor | None = None, tap: Tap = identity_tap) -> Tensor:
        total = torch.zeros(())
        for site, pattern in zip(self.sites, self.patterns, strict=True):
            total = total + tap(site, pattern.expand(len(inputs), *pattern.shape)).sum()
        return total.expand(len(inputs), inputs.shape[1], 1)


def scored(layers: Sequence[Sequence[Tensor]], inputs: Tensor | None = None) -> ScoredHeads:
    inputs = torch.arange(LENGTH).repeat(BATCH, 1) if inputs is None else inputs
    model: Any = Shown(torch.stack([torch.stack(list(heads)) for heads in layers]))
    return score_heads(model, inputs)


def test_every_head_is_found_for_what_it_does():
    found = scored([[SHIFT_BY_3, SELF, FIRST], [BROADCAST_FROM_4, SINK, UNIFORM]])
    expected = {
        "shift": [(0, 0)], "self": [(0, 1)], "first token": [(0, 2), (1, 1)], "broadcast": [(1, 0)],
        "uniform": [(1, 2)],
    }  # fmt: skip
    assert {name: found.heads(name) for name in expected} == expected
    assert int(found.distance[0, 0]) == 3
    assert float(found.scores["shift"][0, 0]) == pytest.approx(1)
    assert float(found.scores["uniform"][1, 2]) == pytest.approx(1)
    assert found.strongest("shift") == (0, 0)


def test_what_a_head_broadcasts_from():
    found = scored([[FIRST, SINK, BROADCAST_FROM_4]])
    assert found.scores["any source"][0].tolist() == pytest.approx([1, 0.9, 0.6])
    assert found.scores["broadcast"][0].tolist() == pytest.approx([0, 1, 1])  # of the little that a sink has left, all
    assert found.fires("broadcast")[0].tolist() == [False, False, True]
    assert not bool(scored([[attends([LENGTH // 2 + 1] * LENGTH)]]).fires("broadcast").any())


def test_the_best_source_and_the_token_there():
    pattern = torch.stack([attends([2] * LENGTH, 0.5), attends([5] * LENGTH, 0.5)]).unsqueeze(1)  # two texts
    value, source = best_source(pattern, besides_first=True)
    assert (value.flatten().tolist(), source.flatten().tolist()) == (pytest.approx([1, 1]), [2, 5])
    value, source = best_source(torch.stack([SELF, UNIFORM]).unsqueeze(1), besides_first=True)
    # uniform attention to position 1: 1 / (q + 1) of what is left, q / (q + 1)
    queries = torch.arange(2, LENGTH)
    assert float(value[0]) == 0
    assert float(value[1]) == pytest.approx(float((1 / (queries + 1)).sum() / (queries / (queries + 1)).sum()))
    inputs = torch.arange(LENGTH).repeat(BATCH, 1) + 10 * torch.arange(BATCH).unsqueeze(1)
    assert scored([[BROADCAST_FROM_4]], inputs).sources[0, :, 0].tolist() == [4, 14, 24, 34]


def test_matching_and_induction_on_repeated_tokens():
    half = LENGTH // 2
    matching = attends([max(query - half, 0) for query in QUERIES])
    induction = attends([max(query - half + 1, 0) for query in QUERIES])
    found = scored([[matching], [induction]], torch.arange(half).repeat(BATCH, 2))
    assert found.heads("matching") == [(0, 0)]
    assert found.heads("induction") == [(1, 0)]
    assert found.scores["induction"].flatten().tolist() == pytest.approx([0, 1])
    # a random head gives 1 / (q + 1) to the one copy of query q
    chance = sum(1 / (query + 1) for query in range(half, LENGTH)) / half
    assert (found.chance["matching"], found.chance["induction"]) == (pytest.approx(chance), pytest.approx(chance))
    assert not bool(scored([[SELF, UNIFORM]]).scores["matching"].any())


def test_similar_heads_and_the_scores_of_chance():
    found = scored([[FIRST, FIRST, FIRST], [FIRST, SELF, FIRST]])
    assert float(found.similarity[:, 0].mean()) == pytest.approx(1)
    # the patterns share the first row, of n; two of three pairs are of different heads
    assert float(found.similarity[:, 1].mean()) == pytest.approx((1 + 2 / LENGTH) / 3)
    found = scored([[UNIFORM]])
    for name in ("self", "first token", "broadcast", "any source"):
        assert float(found.scores[name]) == pytest.approx(found.chance[name]), name
    assert not any(bool(found.fires(name).any()) for name in found.scores if name != "uniform")


def test_every_text_has_its_scores():
    inputs = torch.arange(LENGTH // 2).repeat(BATCH, 2)
    inputs[1, 0] = 50
    found = scored([[SHIFT_BY_3, FIRST], [BROADCAST_FROM_4, UNIFORM]], inputs)
    assert found.by_text.keys() == found.scores.keys()
    for name, by_text in found.by_text.items():
        assert by_text.shape == (BATCH, 2, 2), name
        if name not in ("matching", "induction"):  # where texts with more repetitions weigh more
            torch.testing.assert_close(by_text.mean(dim=0), found.scores[name])
    assert found.by_text["shift"][:, 0, 0].tolist() == pytest.approx([1] * BATCH)
    assert found.texts("shift", "first token").shape == (BATCH, 2, 2, 2)
    assert found.from_first[:, 0, 1].all() and not found.from_first[:, 1, 0].any()
