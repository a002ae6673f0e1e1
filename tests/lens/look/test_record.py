"""Records: of plain arrays of attention, and their selection by axis name."""

import numpy as np
import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Record, describe, detect, record_patterns


def shifting(by, sequences=12, length=6):
    """One head that attends `by` positions back, and to itself where there is nothing."""
    pattern = np.zeros((sequences, 1, length, length))
    for query in range(length):
        pattern[:, 0, query, query - by if query >= by else query] = 1
    return pattern


def test_detectors_read_the_attention_of_any_model():
    tokens = torch.randint(50, (12, 6), generator=torch.Generator().manual_seed(0))
    record = record_patterns((shifting(1), torch.from_numpy(shifting(2))), tokens)
    assert list(record) == ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
    assert record.axes("blocks.1.attn.hook_pattern") == ("member", "batch", "head", "query", "key")
    heads = describe(detect(record)).sort("layer")
    assert heads["label"].to_list() == ["shift 1", "shift 2"]


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ((), "patterns: has layers of shape"),
        ((shifting(1)[0],), "give .batch head query key. for each layer"),
        ((shifting(1), shifting(1, 11)), "patterns: has layers of shape"),
        ((shifting(1, 11),), "for 12 sequences of 6"),
        ((shifting(1), None), "patterns.1: is None; load the model with attn_implementation"),
    ],
)
def test_what_does_not_fit_is_refused(patterns, problem):
    with pytest.raises(SpecError, match=problem):
        record_patterns(patterns, torch.zeros(12, 6, dtype=torch.int64))


class TestAt:
    SITE = "blocks.0.attn.hook_pattern"

    @pytest.fixture
    def record(self):
        values = torch.arange(2 * 3 * 4 * 5 * 5).reshape(2, 3, 4, 5, 5)
        axes = ("member", "batch", "head", "query", "key")
        return Record({self.SITE: values}, {self.SITE: axes}, torch.zeros(3, 5, dtype=torch.int64))

    def test_named_axes_are_selected_and_dropped(self, record):
        values = record[self.SITE]
        assert torch.equal(record.at(self.SITE, head=2, member=1), values[1, :, 2])
        assert torch.equal(record.at(self.SITE, key=-1), values[..., -1])
        assert torch.equal(record.at(self.SITE), values)
        single = record.at(self.SITE, member=0, batch=1, head=2, query=3, key=4)
        assert single.shape == () and single == values[0, 1, 2, 3, 4]

    def test_an_unknown_axis_is_refused_and_the_axes_are_named(self, record):
        with pytest.raises(SpecError, match=r"at\.heads: unknown axis 'heads'; .*member, batch, head, query, key"):
            record.at(self.SITE, heads=0)

    @pytest.mark.parametrize("index", [4, -5])
    def test_an_index_out_of_range_is_refused_and_the_axes_are_named(self, record, index):
        problem = rf"at\.head: index {index} is out of range; .*member 2, batch 3, head 4, query 5, key 5"
        with pytest.raises(SpecError, match=problem):
            record.at(self.SITE, head=index)

    def test_an_unknown_site_is_refused(self, record):
        with pytest.raises(SiteError, match=r"did you mean 'blocks\.0\.attn\.hook_pattern'"):
            record.at("blocks.0.attn.hook_patterns", member=0)
