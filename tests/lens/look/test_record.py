"""Records of plain arrays of attention."""

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import describe, detect, record_patterns


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
