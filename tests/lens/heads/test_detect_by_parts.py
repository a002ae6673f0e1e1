"""A table from parts of a look equals that of the whole, and the first token is told from a broadcast's source."""

import pytest
import torch
from polars.testing import assert_frame_equal

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, describe, detect, detectors, look, look_by_parts
from anchorlab.models import DecoderSpec
from anchorlab.tasks import Batch
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import PATTERN_0, PATTERNS, pattern_record

# no token occurs twice in the first three sequences, so that induction applies to later parts alone
INPUTS = torch.tensor(
    [[0, 1, 2, 3, 4], [5, 4, 3, 2, 1], [6, 1, 3, 5, 0], [1, 1, 2, 1, 2], [0, 3, 0, 3, 3], [1, 2, 3, 4, 1]]
)
ANCHORS, KEYS = torch.tensor([0, 1, 2, 0, 1, 3]), torch.tensor([1, 2, 3, 1, 2, 3])
LENGTHS = torch.tensor([5, 4, 5, 2, 5, 5])


@pytest.fixture(scope="module")
def ensemble():
    return initialise(DecoderSpec(layers=2, heads=3, width=12), TaskShape("tokens", 5, 7, 7), [0, 1])


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("size", [1, 2, 3, 4, None])
def test_parts_give_the_table_of_the_whole(ensemble, size, lengths):
    change = Intervention(site="blocks.0.hook_resid_mid", rule="mean")
    given = {"anchors": ANCHORS, "keys": None if lengths is not None else KEYS, "lengths": lengths}
    options = {"candidates": {"plain": [], "changed": [change]}, "output": False}
    whole = detect(look(ensemble, INPUTS, [PATTERNS], **options), **given)
    parts = detect(look_by_parts(ensemble, INPUTS, [PATTERNS], batch_size=size, **options), **given)
    assert "induction" in parts["detector"]
    assert_frame_equal(parts, whole, abs_tol=1e-5)
    assert parts["candidate"].unique().sort().to_list() == ["changed", "plain"]


def test_with_a_batch(ensemble):
    latents = {"anchor_positions": ANCHORS[:, None], "key_positions": KEYS[:, None]}
    batch = Batch(INPUTS, INPUTS[:, :1], INPUTS[:, :1], torch.tensor([4]), "test", latents=latents)
    whole = detect(look(ensemble, INPUTS, [PATTERNS]), anchors=ANCHORS, keys=KEYS)
    assert_frame_equal(detect(look_by_parts(ensemble, INPUTS, [PATTERNS], batch_size=4), batch), whole, abs_tol=1e-5)
    with pytest.raises(SpecError, match="batch: has other inputs"):
        detect(look_by_parts(ensemble, INPUTS.flip(0), [PATTERNS], batch_size=4), batch)


def test_the_patterns_of_a_part_are_not_kept(ensemble):
    alive = []

    def counted():
        for part in look_by_parts(ensemble, INPUTS, [PATTERNS], output=False, batch_size=1):
            alive.append(part[PATTERN_0].untyped_storage())
            if len(alive) > 2:  # of the parts before the last, nothing but this list holds the patterns
                alive[-3].resize_(0)
            yield part

    assert_frame_equal(detect(counted()), detect(look(ensemble, INPUTS, [PATTERNS])), abs_tol=1e-5)


def test_without_tokens_that_recur_there_is_no_induction(ensemble):
    found = detect(look_by_parts(ensemble, INPUTS[:3], [PATTERNS], batch_size=2))
    assert not set(found["detector"]) & {"induction", "matching"}


def test_parts_without_patterns_are_refused(ensemble):
    with pytest.raises(SiteError, match="the record holds no attention pattern"):
        detect(look_by_parts(ensemble, INPUTS))


def test_parts_of_which_some_alone_are_causal_are_refused():
    causal, free = (torch.full((1, 1, 1, 3, 3), 1 / 3) * mask for mask in (torch.ones(3, 3).tril(), torch.ones(3, 3)))
    with pytest.raises(SpecError, match="record: attends to later positions in some parts alone"):
        detect([pattern_record(pattern, INPUTS[:1, :3]) for pattern in (causal, free)])


class TestFirstToken:
    def test_by_hand(self):
        pattern = torch.tensor([[1.0, 0, 0], [0.4, 0.6, 0], [0.1, 0.7, 0.2]]).expand(2, 1, 3, 3)
        assert float(detectors.first_token(pattern)) == pytest.approx((0.4 + 0.1) / 2)
        alone = detectors.first_token(pattern, torch.tensor([3, 2]))
        assert float(alone) == pytest.approx(((0.4 + 0.1) / 2 + 0.4) / 2)
        with pytest.raises(SpecError, match="a single position"):
            detectors.first_token(torch.ones(1, 1, 1, 1))

    @pytest.mark.parametrize("share", [1.0, 0.9])
    def test_a_sink_is_no_broadcast_though_the_source_is_the_first_token(self, share):
        places = torch.arange(6)
        uniform = torch.ones(6, 6).tril() / (places + 1).unsqueeze(1)
        sink = share * (places == 0).float().expand(6, 6) + (1 - share) * uniform
        record = pattern_record(sink.expand(1, 4, 1, 6, 6), torch.arange(24).view(4, 6))
        # with one anchor for all sequences, as in prompts of one form, position 0 is also at a fixed distance from it
        for anchors, keys in ((torch.zeros(4, dtype=torch.int64), None), (torch.full((4,), 2), torch.zeros(4).long())):
            found = detect(record, anchors=anchors, keys=keys)
            assert found.filter("fires")["detector"].str.starts_with("broadcast").any()
            assert describe(found)["label"].to_list() == ["first token"]

    def test_a_broadcast_is_no_sink_though_some_sources_are_the_first_token(self):
        sources = torch.tensor([0, 0, 2, 3])
        places = torch.arange(6)
        seen = places.reshape(1, 6, 1) >= sources.reshape(4, 1, 1)
        pattern = torch.where(seen, places == sources.reshape(4, 1, 1), torch.eye(6).bool()).float()
        record = pattern_record(pattern.reshape(1, 4, 1, 6, 6), torch.arange(24).view(4, 6))
        assert describe(detect(record, keys=sources))["label"].to_list() == ["broadcast from source"]
