import json

import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, Operand
from tests.lens import hand_built
from tests.lens.hand_built import LENGTH, PATTERN_0, PATTERN_1, PREDICTED, is_near, known_pattern, predicted, tokens

LAST_STREAM = "blocks.1.hook_resid_post"


class TestRules:
    def test_hand_built_model_predicts_the_key(self, solver):
        assert is_near(predicted(solver), known_pattern() @ tokens())
        assert predicted(solver)[:, -1].argmax(dim=-1).tolist() == hand_built.KEYS[:, 0].tolist()

    def test_zeroing_heads_leaves_the_mean_nothing_or_all_by_what_they_do(self, solver):
        output = predicted(solver, Intervention(site=PATTERN_0, where={"head": 0}, rule="zero"))
        assert is_near(output, tokens().cumsum(1) / torch.arange(1.0, LENGTH + 1).unsqueeze(-1))
        output = predicted(solver, Intervention(site=PATTERN_1, where={"head": 0}, rule="zero"))
        assert torch.equal(output, torch.zeros_like(output))
        output = predicted(solver, Intervention(site=PATTERN_1, where={"head": [1, 2]}, rule="zero"))
        assert torch.equal(output, predicted(solver))

    def test_selected_queries_alone(self, solver):
        output = predicted(solver, Intervention(site=PATTERN_1, where={"head": 0, "query": [0, -1]}, rule="zero"))
        expected = known_pattern() @ tokens()
        expected[:, [0, LENGTH - 1]] = 0
        assert is_near(output, expected)

    @pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
    def test_selected_sequences_alone(self, solver, batch_size):
        change = Intervention(site=PATTERN_1, where={"head": 0, "batch": [4, 0, -3]}, rule="scale", operand=0.5)
        expected = known_pattern() @ tokens()
        expected[[0, 3, 4]] *= 0.5
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)

    def test_scale_by_values_with_axes_add_along_one_and_replace_by_a_number(self, solver):
        factors = torch.arange(1.0, LENGTH + 1)
        change = Intervention(site=PATTERN_1, rule="scale", operand=Operand(values=factors, axes=("query",)))
        assert is_near(predicted(solver, change), (known_pattern() * factors.unsqueeze(-1)) @ tokens())
        bias = torch.arange(hand_built.VOCABULARY) / 8
        change = Intervention(site="hook_logits", rule="add", operand=Operand(values=bias, axes=("output",)))
        assert is_near(predicted(solver, change), known_pattern() @ tokens() + bias)
        output = predicted(solver, Intervention(site="hook_logits", where={"output": 3}, rule="replace", operand=7))
        assert bool((output[..., 3] == 7).all())

    @pytest.mark.parametrize("batch_size", [2, 100])
    def test_replace_by_one_pattern_per_sequence(self, batch_size):
        model = hand_built.blank(layers=2)
        hand_built.carrying(model, 1, 0, range(hand_built.VOCABULARY), PREDICTED)
        pattern = known_pattern()
        # axes in another order than the site's, for some sequences only
        operand = Operand(values=pattern[[5, 1]].permute(2, 0, 1), axes=("key", "batch", "query"))
        change = Intervention(site=PATTERN_1, where={"head": 0, "batch": [5, 1]}, rule="replace", operand=operand)
        expected = tokens().cumsum(1) / torch.arange(1.0, LENGTH + 1).unsqueeze(-1)
        expected[[5, 1]] = (pattern @ tokens())[[5, 1]]
        assert is_near(predicted(model, change, batch_size=batch_size), expected)

    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    def test_mean_is_over_all_sequences(self, solver, batch_size):
        change = Intervention(site=PATTERN_1, where={"head": 0}, rule="mean")
        expected = known_pattern().mean(0) @ tokens()
        assert is_near(predicted(solver, change, batch_size=batch_size), expected)

    def test_mean_is_that_of_the_model_without_interventions(self, solver):
        changes = (
            Intervention(site=PATTERN_0, where={"head": 0}, rule="zero"),
            Intervention(site=PATTERN_1, where={"head": 0, "batch": [2]}, rule="mean"),
        )
        expected = tokens().cumsum(1) / torch.arange(1.0, LENGTH + 1).unsqueeze(-1)
        expected[2] = known_pattern().mean(0) @ tokens()[2]
        assert is_near(predicted(solver, *changes, batch_size=4), expected)

    @pytest.mark.parametrize("v8, v1", [(0.0, -3.0), (3.0, -1.0)], ids=["one prediction", "oblique"])
    def test_projections(self, solver, v8, v1):
        """By hand: along o = (v8, v1), the values of two logits, (v . u) u is (v . o) / (o . o) times o."""
        direction = torch.zeros(PREDICTED.stop)
        direction[PREDICTED.start + 8], direction[PREDICTED.start + 1] = v8, v1
        operand = Operand(values=direction, axes=("width",))
        clean = known_pattern() @ tokens()
        share = (v8 * clean[..., 8] + v1 * clean[..., 1]) / (v8**2 + v1**2)
        along = torch.zeros_like(clean)
        along[..., 8], along[..., 1] = v8 * share, v1 * share
        assert clean[..., 1].sum() == 27
        onto = predicted(solver, Intervention(site=LAST_STREAM, rule="project_onto", operand=operand))
        out = predicted(solver, Intervention(site=LAST_STREAM, rule="project_out", operand=operand))
        assert is_near(onto, along)
        assert is_near(out, clean - along)

    def test_interventions_at_one_site_act_in_order(self, solver):
        double = Intervention(site="hook_logits", rule="scale", operand=2)
        add = Intervention(site="hook_logits", rule="add", operand=1)
        clean = known_pattern() @ tokens()
        assert is_near(predicted(solver, double, add), 2 * clean + 1)
        assert is_near(predicted(solver, add, double), 2 * (clean + 1))


class TestData:
    CHANGES = (
        Intervention(site=PATTERN_0, where={"head": 1, "query": [0, 2]}, rule="zero"),
        Intervention(site=PATTERN_0, rule="scale", operand=0.25, may_do_nothing=True),
        Intervention(site=PATTERN_0, rule="add", operand=Operand(values=torch.rand(2, 3), axes=("query", "key"))),
    )

    @pytest.mark.parametrize("change", CHANGES)
    def test_survives_json(self, change):
        assert Intervention.parse(json.loads(change.model_dump_json())) == change

    def test_operands_compare_by_value_and_do_not_follow_the_tensor_they_were_made_of(self):
        assert Operand(values=[1, 2], axes=("key",)) == Operand(values=torch.tensor([1.0, 2.0]), axes=("key",))
        assert Operand(values=[1, 2], axes=("key",)) != Operand(values=[1, 3], axes=("key",))
        assert Operand(values=[1, 2], axes=("key",)) != Operand(values=[1, 2], axes=("query",))
        assert len({Operand(values=[1, 2], axes=("key",)), Operand(values=[1, 2], axes=("key",))}) == 1
        values = torch.zeros(2)
        operand = Operand(values=values, axes=("key",))
        values += 1
        assert operand.values.tolist() == [0, 0]


MISTAKES = [
    ({"rule": "zro"}, "rule: input should be 'zero'"),
    ({"rule": "zero", "wher": {}}, "unknown field 'wher'; did you mean 'where'?"),
    ({"rule": "zero", "operand": 1}, "operand: rule 'zero' takes none"),
    ({"rule": "scale"}, "operand: rule 'scale' needs one"),
    ({"rule": "zero", "where": {"head": []}}, "where.head: tuple should have at least 1 item"),
    ({"rule": "zero", "where": {"head": "one"}}, "where.head: input should be a valid tuple, got 'one'"),
    ({"rule": "project_out", "operand": 1}, "needs a direction"),
    ({"rule": "project_out", "operand": {"values": [0, 0], "axes": ["width"]}}, "a direction of length 0"),
    ({"rule": "project_out", "where": {"width": 1}, "operand": {"values": [1, 0], "axes": ["width"]}},
     "cannot project along 'width'"),
    ({"rule": "add", "operand": {"values": [[1], [2, 3]], "axes": ["key"]}}, "nested lists of numbers with one shape"),
    ({"rule": "add", "operand": {"values": [1, 2], "axes": ["key", "query"]}}, "are not the axes of values of shape"),
    ({"rule": "add", "operand": [1, 2]}, "operand: has no names for the axes of its shape (2,); write Operand(values="),
    ({"rule": "add", "operand": torch.eye(2)}, "write Operand(values=..., axes=('...', 'width')) of anchorlab.lens"),
    ({"rule": "resample"}, "seed: is missing; give a number"),
    ({"rule": "zero", "seed": 1}, "seed: rule 'zero' draws nothing; leave it out"),
    ({"rule": "patch", "operand": 1}, "operand: rule 'patch' takes none"),
    ({"rule": "zero", "at": {"batch": [0]}}, "at.batch: cannot differ between sequences"),
    ({"rule": "zero", "at": {"query": [0]}, "where": {"query": 1}}, "at.query: is selected in where, too"),
    ({"rule": "zero", "at": {"query": [[0], [1, 2]]}}, "at.query: has more places in some sequences"),
    ({"rule": "zero", "at": {"query": "last"}}, "at.query"),
    ({"rule": "zero", "at": {"query": [[0], [-1]]}}, "at.query: lacks a place in some sequences"),
    ({"rule": "project_out", "at": {"key": [0]}, "operand": {"values": [1.0], "axes": ["key"]}},
     "cannot project along 'key'"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), MISTAKES)
def test_mistakes_in_the_data_are_named(fields, message):
    with pytest.raises(SpecError) as caught:
        Intervention.parse({"site": PATTERN_0, **fields}, at="interventions.0")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def vector(size, axis):
    return Operand(values=torch.ones(size), axes=(axis,))


LOUD = [
    (
        Intervention(site="blocks.0.atn.hook_pattern", rule="zero"),
        SiteError,
        "interventions.0.site: unknown site 'blocks.0.atn.hook_pattern'; did you mean 'blocks.0.attn.hook_pattern'?",
    ),
    (Intervention(site="blocks.*.attn.hook_pattern", rule="zero"), SiteError, "is a pattern"),
    (
        Intervention(site=PATTERN_0, where={"query": 0, "key": [3, 4]}, rule="zero"),
        SiteError,
        "interventions.0 (zero blocks.0.attn.hook_pattern query=0 key=[3, 4]) changed nothing",
    ),
    (Intervention(site=PATTERN_0, rule="scale", operand=1), SiteError, "changed nothing"),
    (
        Intervention(site=PATTERN_0, where={"hed": 0}, rule="zero"),
        SpecError,
        "interventions.0.where.hed: unknown axis of blocks.0.attn.hook_pattern: 'hed'; did you mean 'head'?",
    ),
    (
        Intervention(site=PATTERN_0, where={"head": 3}, rule="zero"),
        SpecError,
        "interventions.0.where.head: index 3 is out of range; blocks.0.attn.hook_pattern has 3 there",
    ),
    (Intervention(site=PATTERN_0, where={"batch": [0, 6]}, rule="zero"), SpecError, "where.batch: index 6 is out of"),
    (Intervention(site=PATTERN_0, where={"head": [1, -2]}, rule="zero"), SpecError, "holds an index twice"),
    (
        Intervention(site=PATTERN_0, rule="add", operand=vector(9, "quary")),
        SpecError,
        "interventions.0.operand.axes: unknown axis 'quary'; did you mean 'query'?",
    ),
    (
        Intervention(site=PATTERN_0, where={"query": [1, 2]}, rule="add", operand=vector(9, "query")),
        SpecError,
        "interventions.0.operand: has 9 along 'query', where 2 are selected",
    ),
    (Intervention(site=PATTERN_0, rule="add", operand=vector(2, "member")), SpecError, "has 2 along 'member', where 1"),
    (Intervention(site=PATTERN_0, rule="add", operand=vector(5, "batch")), SpecError, "has 5 along 'batch', where 6"),
]


@pytest.mark.parametrize(("change", "kind", "message"), LOUD)
def test_what_does_not_fit_the_model_fails_loudly(solver, change, kind, message):
    with pytest.raises(kind) as caught:
        predicted(solver, change, batch_size=4)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_doing_nothing_can_be_allowed(solver):
    change = Intervention(site=PATTERN_0, rule="scale", operand=1, may_do_nothing=True)
    assert torch.equal(predicted(solver, change), predicted(solver))
