import pytest
import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import METRICS, Intervention, Operand, effects, estimate_patches, landscape_on, look, patch, steer
from anchorlab.lens.effects import batched
from anchorlab.lens.look import first_sequence
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, RecallSpec, Site, VectorSpec, identity_tap
from anchorlab.models.model import gather_positions
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.hand_built import LENGTH, identity_solver, stacked, turned_solver

SHAPE = TaskShape("tokens", 6, 11, 11)
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randint(0, 11, (7, 6), generator=GENERATOR)
OTHERS = torch.randint(0, 11, (7, 6), generator=GENERATOR)
TARGETS = torch.randint(0, 11, (7, 2), generator=GENERATOR)
SHARED = torch.tensor([4, 1])
OWN = torch.tensor([[0, 5], [1, 2], [2, 5], [3, 0], [4, 5], [5, 1], [0, 2]])
VECTORS = torch.randn(7, 6, 3, generator=GENERATOR, dtype=torch.float64)
VECTOR_TARGETS = torch.randn(7, 2, 2, generator=GENERATOR, dtype=torch.float64)


@pytest.fixture(scope="module")
def ensemble():
    return initialise(
        DecoderSpec(layers=3, heads=2, width=8, head_width=4, hidden=9), SHAPE, [0, 1, 2], dtype=torch.float64
    )


def one_by_one(model, inputs, targets, positions, named, metrics):
    """The metrics `[metric member candidate]` of a look with candidates, computed apart."""
    return scored_apart(outputs_apart(model, inputs, named), targets, positions, metrics)


def at_each(site, axis, size, layers=("",)):
    """Zero at each index of an axis of a site in every layer, one at a time, by name."""
    return {
        f"{layer} {at}": Intervention(site=site.format(layer), where={axis: at}, rule="zero")
        for layer in layers
        for at in range(size)
    }


def outputs_apart(model, inputs, named, **options):
    """The outputs `[member candidate batch position output]` of a look with candidates."""
    candidates = {name: [each.replace(may_do_nothing=True)] for name, each in named.items()}
    return look(model, inputs, candidates=candidates, **options)["output"]


def scored_apart(output, targets, positions, metrics):
    """The metrics `[metric member candidate]` of outputs, computed apart."""
    batch = output.shape[2]
    where = positions.expand(batch, -1) if positions.ndim == 1 else positions
    scored = output[:, :, torch.arange(batch).unsqueeze(1), where]
    values = []
    for metric in metrics:
        if metric == "square":
            each = (scored - targets).square().sum(-1)
        else:
            probability = scored.exp() / scored.exp().sum(-1, keepdim=True)
            kind = {"accuracy": (scored == scored.amax(-1, keepdim=True)), "logit": scored, "probability": probability}
            each = (kind[metric] * nn.functional.one_hot(targets, scored.shape[-1])).sum(-1)
        values.append(each.double().mean(dim=(2, 3)))
    return torch.stack(values)


Z, PATTERN, STREAM = "blocks.{}.attn.hook_z", "blocks.{}.attn.hook_pattern", "blocks.{}.ln2.hook_normalized"
GRIDS = [
    (Z, {"rule": "zero"}, ("head",)),
    (Z, {"rule": "mean"}, ("head", "position")),
    (PATTERN, {"rule": "scale", "operand": 0.5, "where": {"query": [3, -1]}}, ("head",)),
    (PATTERN, {"rule": "replace", "operand": 0.1}, ("query", "key")),
    (STREAM, {"rule": "resample", "seed": 4}, ("position",)),
    (STREAM, {"rule": "patch"}, ("position",)),
    (STREAM, {"rule": "zero", "at": {"position": [0, 1, 2, 3, 4, 5, 0]}}, ("width",)),
    (STREAM, {"rule": "add", "operand": Operand(values=torch.arange(8.0), axes=("width",))}, ("position",)),
    (STREAM, {"rule": "add", "operand": Operand(values=torch.arange(6.0), axes=("position",))}, ()),
    (STREAM, {"rule": "scale", "operand": Operand(values=[2, 3, 4], axes=("member",))}, ()),
    ("blocks.{}.attn.hook_k", {"rule": "zero"}, ("head", "position")),
    ("blocks.{}.mlp.hook_post", {"rule": "mean"}, ("hidden",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("site", "fields", "over"), GRIDS)
def test_equals_one_look_with_candidates(ensemble, site, fields, over):
    given = {"patch_inputs": OTHERS} if fields["rule"] == "patch" else {}
    template = Intervention(site=site.format("*"), **fields)
    shared, own = (
        effects(ensemble, INPUTS, TARGETS, template, over, positions=positions, batch_size=9, **given)
        for positions in (SHARED, OWN)
    )
    shape = shared.values.shape
    assert shape[:3] == (3, 3, 3)
    places = torch.cartesian_prod(*(torch.arange(size) for size in shape[3:])).reshape(-1, len(over)) if over else [[]]
    named = {
        f"{layer} {list(place)}": Intervention(
            site=site.format(layer),
            **{**fields, "where": {**fields.get("where", {}), **{a: int(i) for a, i in zip(over, place, strict=True)}}},
        )
        for layer in range(3)
        for place in places
    }
    changed = outputs_apart(ensemble, INPUTS, named, **given)
    idle = Intervention(site="hook_embed", rule="scale", operand=1)
    plain = outputs_apart(ensemble, INPUTS, {"plain": idle})
    for result, positions in ((shared, SHARED), (own, OWN)):
        assert result.over == over
        expected = scored_apart(changed, TARGETS, positions, METRICS)
        assert (result.values.flatten(2) - expected).abs().max() < 1e-10
        baseline = scored_apart(plain, TARGETS, positions, METRICS)
        assert (result.baseline - baseline[..., 0]).abs().max() < 1e-10
        assert (result.values.flatten(2) - baseline).abs().max() > 1e-5  # something has changed at all


@pytest.mark.parametrize(
    ("spec", "site", "over", "positions"),
    [
        (LSTMSpec(layers=2, width=5), "layers.*.hook_hidden", ("position",), SHARED),
        (RecallSpec(width=8), "blocks.*.attn.hook_q", ("position",), SHARED),
        (RecallSpec(width=8), "hook_embed", ("position",), SHARED),
        (FNNSpec(layers=2, width=4, hidden=6), "blocks.*.hook_post", ("hidden",), None),  # one for a whole sequence
    ],
)
def test_other_models(spec, site, over, positions):
    model = initialise(spec, SHAPE, [0, 1], dtype=torch.float64)
    targets, template = TARGETS if positions is SHARED else TARGETS[:, :1], Intervention(site=site, rule="zero")
    fast = effects(model, INPUTS, targets, template, over, positions=positions)
    slow = effects(model, INPUTS, targets, template, over, positions=positions, mapped=False)
    named = at_each("{}", over[0], 6, fast.sites)
    expected = one_by_one(model, INPUTS, targets, SHARED if positions is SHARED else torch.tensor([5]), named, METRICS)
    for result in (fast, slow):
        assert (result.values.flatten(2) - expected).abs().max() < 1e-10


def test_vectors_and_a_metric_of_ones_own():
    shape = TaskShape("vectors", 6, 3, 2)
    model = initialise(VectorSpec(layers=2, heads=2, width=8, mask=False), shape, [0, 1], dtype=torch.float64)
    template = Intervention(site="blocks.*.attn.hook_z", rule="zero")
    square = {"square": lambda output, targets: (output - targets).square().sum(-1)}
    result = effects(model, VECTORS, VECTOR_TARGETS, template, ("head",), positions=SHARED, metrics=square)
    named = at_each(Z, "head", 2, layers=range(2))
    expected = one_by_one(model, VECTORS, VECTOR_TARGETS, SHARED, named, square)
    assert (result.values.flatten(2) - expected).abs().max() < 1e-10
    assert result.table.columns == ["metric", "member", "site", "layer", "head", "value", "baseline", "change"]


class TestHandBuilt:
    """Which heads solve the identity task is known: layer 0 head 0 and layer 1 head 0."""

    INPUTS, KEYS = hand_built.INPUTS, hand_built.KEYS
    EVERY_HEAD = Intervention(site="blocks.*.attn.hook_z", rule="zero")

    @pytest.fixture
    def result(self):
        return effects(
            stacked(identity_solver(), identity_solver()), self.INPUTS, self.KEYS, self.EVERY_HEAD, ("head",)
        )

    def test_table_and_map(self, result):
        table = result.table
        assert table.columns == ["metric", "member", "site", "layer", "head", "value", "baseline", "change"]
        assert table.height == 3 * 2 * 2 * 3
        row = table.row(by_predicate=_is(metric="logit", member=1, layer=1, head=0), named=True)
        assert row["site"] == "blocks.1.attn.hook_z"
        assert (row["value"], row["baseline"], row["change"]) == pytest.approx((0, 1, -1), abs=1e-5)
        assert result.map("logit", member=1).shape == (2, 3)
        assert result.map("logit", member=1)[1, 0].item() == pytest.approx(-1, abs=1e-5)

    def test_heads_of_several_members_are_not_averaged(self):
        """In the second member the heads of each layer are the other way round."""
        both = stacked(identity_solver(), turned_solver())
        result = effects(both, self.INPUTS, self.KEYS, self.EVERY_HEAD, ("head",))
        for place, member in ((0, 0), (2, 1)):
            assert (result.map("logit", member=member).abs() > 0.1).nonzero().tolist() == [[0, place], [1, place]]
        with pytest.raises(SpecError, match=r"member: head 0 of one member .* choose one from 0 to 1"):
            result.map("logit")
        with pytest.raises(SpecError, match="there is no member 2"):
            result.map("logit", member=2)
        by_place = effects(both, self.INPUTS, self.KEYS, self.EVERY_HEAD, ("position",))
        assert by_place.map("logit").tolist() == by_place.change("logit").mean(dim=0).tolist()

    def test_maps_of_more_and_fewer_axes(self):
        one = effects(identity_solver(), self.INPUTS, self.KEYS, self.EVERY_HEAD, ("head", "position"))
        assert one.map("logit").shape == (2 * 3, LENGTH)
        asked = one.map("logit")[3]  # layer 1, head 0: the last query answers
        assert asked[-1].item() == pytest.approx(-1, abs=1e-5)
        assert asked[:-1].abs().max() < 1e-6
        assert effects(identity_solver(), self.INPUTS, self.KEYS, self.EVERY_HEAD).map("logit").shape == (2, 1)


def _is(**values):
    import polars

    return polars.all_horizontal(*(polars.col(name) == value for name, value in values.items()))


class Users(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.output = nn.Linear(8, 11)

    def forward(self, inputs):
        return self.output(self.embed(inputs).cumsum(dim=1))


def seeded(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind().double()


def test_a_users_own_module():
    module = seeded(Users)
    result = effects(module, INPUTS, TARGETS, Intervention(site="embed", rule="zero"), ("position",), positions=SHARED)
    expected = one_by_one(module, INPUTS, TARGETS, SHARED, at_each("embed", "position", 6), METRICS)
    assert (result.values[:, :, 0] - expected).abs().max() < 1e-10
    assert result.change("logit")[0, 0, 5].abs() == 0  # after all that is asked


class WithSites(Users):
    """Visits a site of its own, and knows nothing of positions."""

    def __init__(self):
        super().__init__()
        self.sites = {"middle": Site("middle", ("batch", "position", "width"))}

    def forward(self, inputs, tap=identity_tap):
        return self.output(tap("middle", self.embed(inputs)).cumsum(dim=1).tanh())


class Weightless(nn.Module):
    """Predicts the token here."""

    def __init__(self) -> None:
        super().__init__()
        self.here = nn.Identity()

    def forward(self, inputs):
        return self.here(nn.functional.one_hot(inputs, 11).double())


def test_a_module_without_weights_is_one_member():
    last, other = INPUTS[:, -1:], (INPUTS[:, -1:] + 1) % 11
    zero, moved = Intervention(site="here", rule="zero"), torch.cat([INPUTS[:, :-1], other], dim=1)
    assert effects(Weightless(), INPUTS, last, zero).change("logit").tolist() == [[-1]]
    assert patch(Weightless(), INPUTS, moved, last, other, site="here", over=()).recovered.tolist() == [[1]]
    assert estimate_patches(Weightless(), INPUTS, moved, last, other, site="here", over=()).recovered.tolist() == [[1]]
    assert steer(Weightless(), INPUTS, last, torch.ones(11), "here", [2]).curve("logit").tolist() == [[[3]]]
    assert landscape_on(Weightless(), INPUTS, last, ["here"], "zero").accuracy[0, 1] == 1


def test_a_users_own_module_with_sites():
    module = seeded(WithSites)
    template = Intervention(site="middle", rule="zero")
    results = [
        effects(module, INPUTS, TARGETS, template, ("position",), positions=OWN, mapped=mapped)
        for mapped in (None, True, False)
    ]
    expected = one_by_one(module, INPUTS, TARGETS, OWN, at_each("middle", "position", 6), METRICS)
    for result in results:
        assert (result.values[:, :, 0] - expected).abs().max() < 1e-10


class Entered(nn.Module):
    """Blocks that add to a stream, written without anything of ours but sites, `positions` and `entering`."""

    positions_narrow_sites = False

    def __init__(self):
        super().__init__()
        names = [f"blocks.{layer}.{kind}" for layer in range(3) for kind in ("hook_resid_pre", "hook_mixed")]
        self.sites = {name: Site(name, ("batch", "position", "width")) for name in names}
        self.embed = nn.Embedding(11, 8)
        self.mix = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.output = nn.Linear(8, 11)
        self.began, self.logits = [], []

    def forward(self, inputs, positions=None, tap=identity_tap, entering=None):
        first, x = (0, self.embed(inputs)) if entering is None else entering
        self.began.append(first)
        for layer in range(first, 3):
            x = tap(f"blocks.{layer}.hook_resid_pre", x)
            x = x + tap(f"blocks.{layer}.hook_mixed", self.mix[layer](x).tanh().cumsum(dim=1))
        x = gather_positions(x, positions)
        self.logits.append(x.shape[1])
        return self.output(x)


@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("site", ["hook_resid_pre", "hook_mixed"])
def test_any_module_whose_forward_can_begin_at_a_block(site, batch_size, monkeypatch):
    module = seeded(Entered)
    made = []
    copy = batched.member_module
    monkeypatch.setattr(batched, "member_module", lambda *given: made.append(copy(*given)) or made[-1])
    template = Intervention(site=f"blocks.*.{site}", rule="zero")
    options = {"positions": OWN, "batch_size": batch_size}
    result = effects(module, INPUTS, TARGETS, template, ("width",), **options)
    named = at_each(f"blocks.{{}}.{site}", "width", 8, layers=range(3))
    expected = one_by_one(module, INPUTS, TARGETS, OWN, named, METRICS)
    assert (result.values.flatten(2) - expected).abs().max() < 1e-10
    assert set(made[0].began) == {0, 1, 2}
    assert set(made[0].logits) <= {1, 2, 6}


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [True, False])
def test_batch_size_is_chosen_from_memory(ensemble, mapped, monkeypatch):
    template = Intervention(site="blocks.*.attn.hook_pattern", rule="zero")
    whole = effects(ensemble, INPUTS, TARGETS, template, ("head",), positions=OWN, mapped=mapped, batch_size=256)
    for room in (1, 30_000):
        monkeypatch.setattr(first_sequence, "WORKING_BYTES", room)
        result = effects(ensemble, INPUTS, TARGETS, template, ("head",), positions=OWN, mapped=mapped)
        assert torch.allclose(result.values, whole.values, atol=1e-12)
        assert torch.allclose(result.baseline, whole.baseline, atol=1e-12)


def test_a_value_that_the_module_does_not_read_is_refused():
    class Unread(Users):
        def forward(self, inputs):
            self.attention(*[self.embed(inputs)] * 3)
            return super().forward(inputs)

    module = Unread()
    module.attention = nn.MultiheadAttention(8, 2, batch_first=True)
    heads = Intervention(site="attention[1]", rule="zero")
    with pytest.raises(SiteError, match=r"intervention at attention\[1\]: the model does not read the value"):
        effects(module, INPUTS, TARGETS, heads, positions=SHARED)
    assert (
        not effects(module, INPUTS, TARGETS, heads.replace(may_do_nothing=True), positions=SHARED).change("logit").any()
    )


@pytest.mark.parametrize("mapped", [True, False])
def test_what_changes_nothing_counts_for_nothing_and_progress_reaches_the_end(ensemble, mapped):
    told = []
    idle = Intervention(site="blocks.*.attn.hook_pattern", where={"query": 0, "key": 1}, rule="zero")
    options = {"positions": OWN, "mapped": mapped, "progress": lambda done, count: told.append((done, count))}
    result = effects(ensemble, INPUTS, TARGETS, idle, ("head",), **options)
    assert result.change("logit").abs().max() <= (1e-12 if mapped else 0)
    everything = 3 * 3 * 2 * len(INPUTS)  # members, layers, heads
    assert {count for _, count in told} == {everything}
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == everything and len(told) > 1


ZERO = Intervention(site=Z.format("*"), rule="zero")


SHORT = ZERO.replace(rule="replace", operand=Operand(values=torch.ones(5), axes=("position",)))
REFUSED = [
    (ZERO, {"over": ("hed",)}, r"over.0: unknown axis of blocks.0.attn.hook_z: 'hed'; did you mean 'head'"),
    (ZERO, {"over": ("batch",)}, r"over.0: unknown axis of blocks.0.attn.hook_z: 'batch'"),
    (ZERO, {"over": ("head", "head")}, r"over.1: 'head' is selected already"),
    (Intervention(site="blocks.0.**.*_p*", rule="zero"), {"over": ("width",)},
     r"over.0: unknown axis|over.0: .* has sizes"),
    *((SHORT, {"over": ("head",), "mapped": mapped}, "operand: has 5 along 'position', where 6 are selected")
      for mapped in (True, False)),
    *((ZERO, {"metrics": {"mean": lambda output, targets: output.mean()}, "mapped": mapped},
       r"^metrics\.mean: returns shape \(\) for targets of shape \(\d+, 2\); return one number for each scored")
      for mapped in (True, False)),
    *((ZERO, {"targets": TARGETS + 11 * sign, "mapped": mapped}, r"^targets: hold -?\d+, a token outside 0\.\.10; give")
      for sign in (1, -1) for mapped in (True, False)),
    *((ZERO, {"targets": targets, "mapped": mapped}, "^targets: are no tokens; give .* or your own metrics")
      for targets in (TARGETS.unsqueeze(-1).expand(-1, -1, 11), TARGETS.float()) for mapped in (True, False)),
    (ZERO, {"metrics": {}}, "^metrics: there is none; give functions by name, or leave it out"),
    pytest.param(ZERO, {"targets": [1, 2]}, r"^targets: have shape \(\), .*; give a tensor with one for each scored",
                 marks=pytest.mark.untyped),
    (ZERO, {"positions": None}, r"targets: have shape \(7, 2\), whose first two axes are not batch and scored"),
    (ZERO.replace(site="blocks.*.atn.hook_z"), {}, r"intervention.site: unknown site"),
    (Intervention(site="embed", rule="zero"), {"model": seeded(Users), "mapped": True},
     "mapped: the model has no sites of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "message"), REFUSED)
def test_what_does_not_fit_is_named(ensemble, change, options, message):
    given = {"model": ensemble, "inputs": INPUTS, "targets": TARGETS, "intervention": change, "positions": SHARED}
    with pytest.raises((SiteError, SpecError), match=message):
        effects(**(given | options))


def test_an_unknown_metric_is_named(ensemble):
    with pytest.raises(SpecError, match="metric: unknown metric 'logits'; did you mean 'logit'"):
        effects(ensemble, INPUTS, TARGETS, ZERO, positions=SHARED).change("logits")
