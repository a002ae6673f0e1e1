"""Tables of detectors: of hand-built models, of parts of a look, and of a batch."""

import subprocess
import sys

import polars
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn

import anchorlab as al
from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, describe, detect, detectors, look, look_by_parts
from anchorlab.models import DecoderSpec
from anchorlab.tasks import Batch
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import ANCHORS, INPUTS, LENGTH, PATTERN_0, PATTERNS, induction_circuit, pattern_record

LAST = torch.tensor([LENGTH - 1])


@pytest.fixture(scope="module")
def frame(solvers):
    record = look(solvers, INPUTS, record=[PATTERNS, "**.hook_attn_scores"])
    return detect(record, anchors=ANCHORS, keys=ANCHORS + 1)


def row(frame, **where):
    return frame.filter(**where).row(0, named=True)


def test_one_row_each_and_all_within_zero_and_one_printed_within_100_characters(frame):
    detectors = ["shift", "previous_token", "self_attending", "uniform", "first_token", "fixed_position"]
    detectors += ["anchor_attending", "broadcast_profile", "broadcast"]
    columns = ["member", "layer", "head", "detector", "offset", "value", "chance", "low", "high", "fires"]
    assert frame.columns == columns
    assert frame.height == 2 * 2 * 3 * len(detectors)  # no induction: no token occurs twice
    assert sorted(frame["detector"].unique()) == sorted(detectors)
    assert frame["value"].is_between(-1e-6, 1 + 1e-6).all()
    assert not frame.select("member", "layer", "head", "detector").is_duplicated().any()
    lines = str(frame).splitlines()
    assert max(map(len, lines)) <= 100
    assert [name.strip() for name in lines[2].strip("│").split("┆")] == frame.columns


def test_intervals_hold_the_value(frame):
    assert (frame["low"] <= frame["value"] + 1e-6).all()
    assert (frame["high"] >= frame["value"] - 1e-6).all()
    # a shift is the same in every sequence; where the source stands differs, and with it how much of it a head sees
    by_position = row(frame, member=0, layer=0, head=0, detector="shift")
    assert by_position["high"] - by_position["low"] < 1e-5
    by_token = row(frame, member=0, layer=1, head=2, detector="broadcast")
    assert by_token["high"] - by_token["low"] > 0.1


def test_labels_of_hand_built_heads_with_and_without_anchors_and_of_induction(frame, solver):
    labels = describe(frame)
    assert labels.columns == ["member", "layer", "head", "label"]
    for member, k in ((0, 1), (1, 2)):
        expected = [f"shift {k}", f"shift {k + 1}", "uniform", f"broadcast from anchor+{k}", "broadcast from anchor"]
        assert labels.filter(member=member)["label"].to_list() == [*expected, "self"]
    record = look(solver, INPUTS, record=[PATTERNS])
    assert row(describe(detect(record, keys=ANCHORS + 1)), layer=1, head=0)["label"] == "broadcast from source"
    assert row(describe(detect(record)), layer=1, head=0)["label"] == "-"
    tokens = torch.tensor([[5, 7, 9, 4, 5, 7, 9, 4, 5], [8, 3, 1, 8, 3, 1, 8, 3, 1], [2, 6, 4, 1, 9, 2, 6, 4, 1]])
    labels = describe(detect(look(induction_circuit(), tokens, record=[PATTERNS])))
    assert labels["label"].to_list() == ["shift 1", "uniform", "uniform", "induction", "uniform", "uniform"]


def test_heads_without_a_mask():
    forward, first, last = torch.eye(6).roll(1, dims=1), torch.zeros(6, 6), torch.zeros(6, 6)
    first[:, 0] = last[:, 5] = 1
    # half of a head's attention to what it does not do, the rest everywhere: nothing fires
    middling = (torch.eye(6).roll(1, dims=1) + torch.full((6, 6), 1 / 6)) / 2
    pattern = torch.stack([forward, first, last, middling, torch.eye(6)]).expand(1, 3, 5, 6, 6)
    found = detect(pattern_record(pattern, torch.arange(6).expand(3, 6)))
    assert row(found, head=0, detector="next_token")["value"] == 1
    assert row(found, head=2, detector="fixed_position")["offset"] == 5
    # all queries are asked about every position: that the last attends to itself is a sixth of attending to the last
    assert row(found, head=4, detector="fixed_position")["value"] == pytest.approx(1 / 6)
    assert describe(found)["label"].to_list() == ["next", "first token", "position 5", "-", "self"]


def test_broadcast_from_a_source_at_one_distance_is_named_by_the_anchor():
    places = torch.arange(LENGTH)
    uniform = torch.ones(len(places), len(places)).tril() / (places + 1).unsqueeze(1)
    # four fifths on the source where it can be seen; the rest, and the queries before it, everywhere
    source = (places == (ANCHORS + 1).unsqueeze(1)).float().unsqueeze(1)
    seen = (places >= (ANCHORS + 1).unsqueeze(1)).unsqueeze(2)
    pattern = torch.where(seen, 0.8 * source + 0.2 * uniform, uniform)
    found = detect(pattern_record(pattern.reshape(1, 6, 1, *uniform.shape), INPUTS), anchors=ANCHORS, keys=ANCHORS + 1)
    by_source, by_anchor = row(found, detector="broadcast"), row(found, detector="broadcast_profile")
    # the same score, but it is above the chance of one source by more than above that of the best of many
    assert by_source["value"] == pytest.approx(by_anchor["value"])
    assert by_source["chance"] < by_anchor["chance"] - 0.05
    assert describe(found)["label"].to_list() == ["broadcast from anchor+1"]


def test_induction_where_tokens_recur_and_of_two_that_fire_the_stronger_names_the_head():
    # a new token attends to itself, one that has stood before to where it stood, which is two back
    tokens = torch.tensor([[1, 2, 1, 2], [3, 4, 3, 4]])
    shift_two = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0.9, 0, 0.1, 0], [0, 0.9, 0, 0.1]])
    found = detect(pattern_record(shift_two.expand(1, 2, 1, 4, 4), tokens))
    fired = dict(found.filter("fires").select("detector", "value").iter_rows())
    assert fired == {"shift": pytest.approx(0.9), "matching": pytest.approx(0.9)}
    # chance, by hand: 25/48 for a shift by any k, (1/3 + 1/4) / 2 for matching
    assert describe(found)["label"].to_list() == ["matching"]
    record = look(induction_circuit(), torch.tensor([[0, 5, 7, 9, 5, 7, 2, 5, 4]]), record=[PATTERNS])
    found = detect(record).filter(detector="induction").sort("value", descending=True)
    assert found.row(0, named=True)["value"] == pytest.approx(1, abs=1e-3)
    assert found.select("layer", "head").row(0) == (1, 0)


def test_candidates_have_their_own_column(solver):
    mean = Intervention(site=PATTERN_0, where={"head": 0}, rule="replace", operand=1 / 9)
    record = look(solver, INPUTS, record=[PATTERNS], candidates={"full": [], "flat": [mean]})
    shifts = detect(record).filter(detector="previous_token", layer=0, head=0)
    assert dict(zip(shifts["candidate"], shifts["value"], strict=True)) == {
        "full": pytest.approx(1, abs=1e-3),
        "flat": pytest.approx(1 / 9, abs=1e-6),
    }
    assert isinstance(shifts, polars.DataFrame)
    labels = describe(detect(record)).filter(layer=0, head=0)
    assert labels.columns == ["member", "candidate", "layer", "head", "label"]
    assert dict(zip(labels["candidate"], labels["label"], strict=True)) == {"full": "shift 1", "flat": "uniform"}


def batch_of(inputs, **latents):
    return Batch(inputs, targets=inputs[:, -1:], answers=inputs[:, -1:], positions=LAST, split="test", latents=latents)


class TestBatch:
    """Anchors and keys come from the batch, unless they are given."""

    @pytest.fixture
    def record(self, solver):
        return look(solver, INPUTS, record=[PATTERNS])

    def test_the_first_anchor_and_key_are_read_from_its_latents(self, record):
        others = torch.zeros_like(ANCHORS)  # a second anchor and key, which do not count
        latents = {"anchor_positions": (ANCHORS, others), "key_positions": (ANCHORS + 1, others)}
        batch = batch_of(INPUTS, **{name: torch.stack(both, dim=1) for name, both in latents.items()})
        assert detect(record, batch).equals(detect(record, anchors=ANCHORS, keys=ANCHORS + 1))

    def test_what_is_given_goes_before_the_batch(self, record):
        batch = batch_of(INPUTS, anchor_positions=ANCHORS[:, None], key_positions=ANCHORS[:, None])
        assert detect(record, batch, keys=ANCHORS + 1).equals(detect(record, anchors=ANCHORS, keys=ANCHORS + 1))
        mirrored = LENGTH - 1 - ANCHORS
        assert detect(record, batch, anchors=mirrored).equals(detect(record, anchors=mirrored, keys=ANCHORS))

    def test_a_batch_need_not_have_them(self, record):
        missing = ANCHORS.index_fill(0, torch.tensor([2]), -1)
        none, some = batch_of(INPUTS), batch_of(INPUTS, anchor_positions=missing[:, None], keys=ANCHORS)
        empty = batch_of(INPUTS, key_positions=torch.zeros(len(INPUTS), 0, dtype=torch.int64))
        for batch in (none, some, empty):
            assert detect(record, batch).equals(detect(record))

    def test_a_sampled_batch(self):
        task = al.task("anchor/identity")
        batch = task.sample("test", 20, seed=0)
        length = batch.inputs.shape[1]
        key = torch.nn.functional.one_hot(batch.latents["key_positions"][:, 0], length).float()
        record = pattern_record(key[None, :, None, None].expand(1, -1, 1, length, -1), batch.inputs)
        assert row(detect(record, batch), detector="broadcast")["value"] == pytest.approx(1)
        assert describe(detect(record, batch))["label"].to_list() == ["broadcast from anchor+1"]


@pytest.mark.slow
def test_tables_and_figures_are_imported_late():
    code = (
        "import sys, anchorlab.lens; sys.exit(any(name in sys.modules for name in ('polars', 'matplotlib', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# A table from parts of a look equals that of the whole, and the first token is told from a broadcast's source.
# no token occurs twice in the first three sequences, so that induction applies to later parts alone
SEQUENCES = torch.tensor(
    [[0, 1, 2, 3, 4], [5, 4, 3, 2, 1], [6, 1, 3, 5, 0], [1, 1, 2, 1, 2], [0, 3, 0, 3, 3], [1, 2, 3, 4, 1]]
)
STARTS, ENDS = torch.tensor([0, 1, 2, 0, 1, 3]), torch.tensor([1, 2, 3, 1, 2, 3])
LENGTHS = torch.tensor([5, 4, 5, 2, 5, 5])


@pytest.fixture(scope="module")
def ensemble():
    return initialise(DecoderSpec(layers=2, heads=3, width=12), TaskShape("tokens", 5, 7, 7), [0, 1])


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("size", [1, 2, 3, 4, None])
def test_parts_give_the_table_of_the_whole(ensemble, size, lengths):
    change = Intervention(site="blocks.0.hook_resid_mid", rule="mean")
    given = {"anchors": STARTS, "keys": None if lengths is not None else ENDS, "lengths": lengths}
    options = {"candidates": {"plain": [], "changed": [change]}, "output": False}
    whole = detect(look(ensemble, SEQUENCES, [PATTERNS], **options), **given)
    parts = detect(look_by_parts(ensemble, SEQUENCES, [PATTERNS], batch_size=size, **options), **given)
    assert "induction" in parts["detector"]
    assert_frame_equal(parts, whole, abs_tol=1e-5)
    assert parts["candidate"].unique().sort().to_list() == ["changed", "plain"]


def test_with_a_batch(ensemble):
    latents = {"anchor_positions": STARTS[:, None], "key_positions": ENDS[:, None]}
    batch = Batch(SEQUENCES, SEQUENCES[:, :1], SEQUENCES[:, :1], torch.tensor([4]), "test", latents=latents)
    whole = detect(look(ensemble, SEQUENCES, [PATTERNS]), anchors=STARTS, keys=ENDS)
    assert_frame_equal(detect(look_by_parts(ensemble, SEQUENCES, [PATTERNS], batch_size=4), batch), whole, abs_tol=1e-5)
    with pytest.raises(SpecError, match="batch: has other inputs"):
        detect(look_by_parts(ensemble, SEQUENCES.flip(0), [PATTERNS], batch_size=4), batch)


def test_the_patterns_of_a_part_are_not_kept(ensemble):
    alive = []

    def counted():
        for part in look_by_parts(ensemble, SEQUENCES, [PATTERNS], output=False, batch_size=1):
            alive.append(part[PATTERN_0].untyped_storage())
            if len(alive) > 2:  # of the parts before the last, nothing but this list holds the patterns
                alive[-3].resize_(0)
            yield part

    assert_frame_equal(detect(counted()), detect(look(ensemble, SEQUENCES, [PATTERNS])), abs_tol=1e-5)
    found = detect(look_by_parts(ensemble, SEQUENCES[:3], [PATTERNS], batch_size=2))  # no token recurs in these
    assert not set(found["detector"]) & {"induction", "matching"}


class TestFirstToken:
    def test_by_hand(self):
        pattern = torch.tensor([[1.0, 0, 0], [0.4, 0.6, 0], [0.1, 0.7, 0.2]]).expand(2, 1, 3, 3)
        assert float(detectors.first_token(pattern)) == pytest.approx((0.4 + 0.1) / 2)
        alone = detectors.first_token(pattern, torch.tensor([3, 2]))
        assert float(alone) == pytest.approx(((0.4 + 0.1) / 2 + 0.4) / 2)

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


CAUSAL, FREE = (torch.full((1, 1, 1, 3, 3), 1 / 3) * mask for mask in (torch.ones(3, 3).tril(), torch.ones(3, 3)))
REMEDY = r"record patterns first: al\.look\(run, batch, record=\['blocks\.\*\.attn\.hook_pattern'\]\)"
REFUSED = [
    (lambda model: detect(look(model, INPUTS)), r"record a site such as 'blocks\.\*\.attn\.hook_pattern'"),
    (lambda model: detect(look_by_parts(model, INPUTS)), "the record holds no attention pattern"),
    (lambda _: detect([pattern_record(pattern, SEQUENCES[:1, :3]) for pattern in (CAUSAL, FREE)]),
     "record: attends to later positions in some parts alone"),
    (lambda model: detect(look(model, INPUTS, [PATTERNS]), batch_of(INPUTS.flip(0))),
     "batch: has other inputs than the record"),
    (lambda model: detect(look(model, INPUTS, [PATTERNS]), INPUTS),
     r"^batch: is of type Tensor; give what task\.sample returned$"),
    (lambda model: detect(look(model, INPUTS, [PATTERNS]), keys=INPUTS[:, :2]),
     r"^keys: have the shape \[6, 2\]; give one of each sequence, as in keys\[:, 0\]$"),
    *((lambda _, each=each: detect(pattern_record(each * torch.eye(3).expand(1, 1, 1, 3, 3), SEQUENCES[:1, :3])),
       r"^pattern: has weights outside 0\.\.1; a head of linear attention has no shares to score; read the record")
      for each in (-0.1, 1.1)),
    *((lambda _, given=given: detect(given), rf"^record: is of type \w+, not a record of attention; {REMEDY}$")
      for given in (nn.Linear(2, 2), torch.zeros(2, 3, 3), [nn.Linear(2, 2)], None)),
]  # fmt: skip


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_cannot_be_detected_is_named(solvers, ask, message):
    with pytest.raises((SiteError, SpecError), match=message):
        ask(solvers)
