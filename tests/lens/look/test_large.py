"""What lets `look` work on large models: outputs left out, positions handed on, memory bounded, parts."""

import pytest
import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, look, look_by_parts
from anchorlab.lens.look import first_sequence
from anchorlab.models import DecoderSpec, FNNSpec, Model, Site, identity_tap
from anchorlab.models.model import gather_positions
from anchorlab.training.ensemble import initialise

SHAPE = TaskShape("tokens", 6, 11, 11)
PATTERNS = "blocks.*.attn.hook_pattern"
INPUTS = torch.randint(0, 11, (7, 6), generator=torch.Generator().manual_seed(0))
OTHERS = torch.randint(0, 11, (7, 6), generator=torch.Generator().manual_seed(1))
OWN = torch.arange(7).remainder(6).unsqueeze(1)


@pytest.fixture(scope="module")
def ensemble():
    return initialise(DecoderSpec(layers=2, heads=2, width=8, head_width=4), SHAPE, [0, 1], dtype=torch.float64)


class Wide(Model):
    """Running sums of embeddings, mapped to logits at the positions alone; remembers how many logits it computed."""

    positions_narrow_sites = False

    def __init__(self):
        super().__init__()
        stream = ("batch", "position", "width")
        sites = [Site("middle", stream), Site("hook_logits", ("batch", "position", "output"))]
        self.sites = {site.name: site for site in sites}
        generator = torch.Generator().manual_seed(0)
        self.embed = nn.Parameter(torch.randn(11, 4, generator=generator, dtype=torch.float64))
        self.unembed = nn.Parameter(torch.randn(4, 50, generator=generator, dtype=torch.float64))
        self.computed, self.sequences = [], []

    def forward(self, inputs, positions=None, tap=identity_tap):
        stream = gather_positions(tap("middle", self.embed[inputs].cumsum(dim=1)), positions)
        self.computed.append(stream.shape[1])
        self.sequences.append(len(inputs))
        return tap("hook_logits", stream @ self.unembed)

    def expected(self, inputs=INPUTS):
        return (self.embed.detach()[inputs].cumsum(dim=1)) @ self.unembed.detach()


class TestOutput:
    def test_is_left_out(self, ensemble):
        record = look(ensemble, INPUTS, [PATTERNS], output=False)
        assert list(record) == ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
        whole = look(ensemble, INPUTS, [PATTERNS])
        assert all(torch.equal(record[site], whole[site]) for site in record)
        with pytest.raises(SiteError, match="unknown site 'output'"):
            record["output"]

    def test_logits_are_computed_at_the_last_position_alone_or_where_they_are_recorded(self):
        model = Wide()
        zero = Intervention(site="middle", where={"position": 1}, rule="mean")
        record = look(model, INPUTS, ["middle"], [zero], output=False)
        assert set(model.computed) == {1}
        expected = model.embed.detach()[INPUTS].cumsum(dim=1)
        expected[:, 1] = expected[:, 1].mean(dim=0)
        assert torch.allclose(record["middle"][0], expected)
        model = Wide()
        record = look(model, INPUTS, ["hook_logits"], output=False)
        assert set(model.computed) == {6}
        assert torch.equal(record["hook_logits"][0], model.expected())


class TestPositions:
    @pytest.mark.parametrize("batch_size", [None, 3])
    def test_are_handed_on_where_no_site_would_lack_any(self, batch_size):
        model = Wide()
        for positions in (torch.tensor([5, 2]), OWN):
            record = look(model, INPUTS, ["middle"], positions=positions, batch_size=batch_size)
            assert record.axes("output") == ("member", "batch", "scored", "output")
            assert torch.allclose(record["output"][0], gather_positions(model.expected(), positions))
            assert record["middle"].shape[2] == 6
        assert set(model.computed) == {1, 2}

    def test_are_not_where_the_logits_are_changed(self):
        model = Wide()
        change = Intervention(site="hook_logits", where={"position": 5}, rule="zero")
        record = look(model, INPUTS, interventions=[change], positions=torch.tensor([5, 2]))
        assert set(model.computed) == {6}
        assert not record["output"][0, :, 0].any()
        assert torch.allclose(record["output"][0, :, 1], model.expected()[:, 2])

    def test_a_decoder_gets_them_only_without_sites(self, ensemble):
        seen = []
        forward = ensemble.template.forward

        def watched(inputs, positions=None, tap=identity_tap, entering=None):
            seen.append(positions is not None)
            return forward(inputs, positions, tap, entering)

        try:
            ensemble.template.forward = watched
            alone = look(ensemble, INPUTS, positions=OWN)["output"]
            assert all(seen)
            seen.clear()
            last = "blocks.1.attn.hook_pattern"
            beside = look(ensemble, INPUTS, [last], positions=OWN)
            assert not any(seen)
        finally:
            del ensemble.template.forward
        assert beside[last].shape[-2:] == (6, 6)
        full = look(ensemble, INPUTS)["output"]
        for output in (alone, beside["output"]):
            assert torch.allclose(output[:, :, 0], full[:, torch.arange(7), OWN[:, 0]], atol=1e-12)

    def test_a_model_of_one_prediction_repeats_it(self):
        model = initialise(FNNSpec(layers=1, width=4, hidden=6), SHAPE, [0])
        output = look(model, INPUTS, positions=torch.tensor([5, 1]))["output"]
        assert output.shape == (1, 7, 2, 11)
        assert torch.equal(output[:, :, 0], output[:, :, 1])


class TestSequencesAtATime:
    def test_are_as_many_as_fit_and_more_without_the_logits(self, monkeypatch):
        model = Wide()
        largest = 6 * 50 * 8  # the logits of one sequence, in float64
        for room, expected in ((4 * largest * 3, [3, 3, 1]), (4 * largest * 3 - 1, [2, 2, 2, 1]), (1, [1] * 7)):
            monkeypatch.setattr(first_sequence, "WORKING_BYTES", room)
            model.sequences.clear()
            assert torch.allclose(look(model, INPUTS)["output"][0], model.expected())
            assert model.sequences == [1, *expected]  # the first pass takes the sizes
        model = Wide()
        monkeypatch.setattr(first_sequence, "WORKING_BYTES", 4 * (6 * 50 * 8))
        look(model, INPUTS, ["middle"], output=False)
        assert max(model.sequences) == 50 * 6 // max(50, 4 * 6)
        model.sequences.clear()
        look(model, INPUTS, ["middle"])
        assert max(model.sequences) == 1

    def test_a_modules_submodules_and_their_tuples_count(self, monkeypatch):
        module = Users()
        monkeypatch.setattr(
            first_sequence, "WORKING_BYTES", 4 * (2 * 6 * 11 * 4) * 2
        )  # two sequences' [head query output]
        seen = []
        module.embed.register_forward_hook(lambda part, arguments, output: seen.append(len(output)))
        look(module, INPUTS, ["embed"])
        assert seen == [1, 2, 2, 2, 1]

    def test_does_not_change_the_record(self, ensemble, monkeypatch):
        changes = [
            Intervention(site="blocks.0.hook_resid_mid", where={"batch": [1, 5]}, at={"position": OWN}, rule="mean"),
            Intervention(site="blocks.1.attn.hook_z", where={"head": 1}, rule="resample", seed=2),
            Intervention(site="blocks.1.mlp.hook_post", where={"position": -1}, rule="patch"),
        ]
        options = {"record": ["**"], "interventions": changes, "patch_inputs": OTHERS}
        whole = look(ensemble, INPUTS, batch_size=7, **options)
        for room in (1, 20_000, 2**30):
            monkeypatch.setattr(first_sequence, "WORKING_BYTES", room)
            record = look(ensemble, INPUTS, **options)
            assert set(record) == set(whole)
            assert all(torch.allclose(record[site], whole[site], atol=1e-12) for site in whole)


class TestParts:
    CHANGES = (
        Intervention(site="blocks.0.hook_resid_mid", where={"batch": [1, 5]}, at={"position": OWN}, rule="mean"),
        Intervention(site="blocks.1.attn.hook_z", where={"head": 1}, rule="resample", seed=2),
        Intervention(
            site="blocks.1.hook_resid_mid", rule="add", operand={"values": [0, 1, 2, 3, 4, 5, 6], "axes": ["batch"]}
        ),
    )

    @pytest.mark.parametrize("positions", [None, OWN])
    @pytest.mark.parametrize("batch_size", [1, 3, None])
    def test_make_up_the_record(self, ensemble, batch_size, positions):
        options = {"candidates": {"plain": [], "changed": self.CHANGES}, "positions": positions}
        whole = look(ensemble, INPUTS, [PATTERNS], batch_size=7, **options)
        parts = list(look_by_parts(ensemble, INPUTS, [PATTERNS], batch_size=batch_size, **options))
        assert len(parts) == {1: 7, 3: 3, None: 1}[batch_size]
        assert torch.equal(torch.cat([part.inputs for part in parts]), INPUTS)
        for site in whole:
            joined = torch.cat([part[site] for part in parts], dim=2)
            assert torch.allclose(joined, whole[site], atol=1e-12)
            assert all(part.axes(site) == whole.axes(site) for part in parts)
        assert parts[0].candidates == ("plain", "changed")

    def test_reckon_with_what_they_record(self, monkeypatch):
        model = Wide()
        monkeypatch.setattr(first_sequence, "WORKING_BYTES", (4 + 1) * (6 * 50 * 8) * 2 + 2 * (6 * 4 * 8))
        assert [len(part.inputs) for part in look_by_parts(model, INPUTS, ["middle"])] == [2, 2, 2, 1]

    def test_leave_gradients_on_and_end_with_the_check_of_the_interventions(self, ensemble):
        for part in look_by_parts(ensemble, INPUTS, [PATTERNS], batch_size=4):
            assert torch.is_grad_enabled() and len(part.inputs) in (3, 4)
        idle = Intervention(site="blocks.0.attn.hook_pattern", where={"query": 0, "key": 1}, rule="zero")
        with pytest.raises(SiteError, match="changed nothing"):
            list(look_by_parts(ensemble, INPUTS, interventions=[idle], batch_size=3))


class Users(nn.Module):
    """Attention that returns its weights, which nobody reads, and a gate whose weights are 0."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed = nn.Embedding(11, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.output = nn.Linear(8, 11)
            self.picked = nn.Identity()
        self.gate = nn.Parameter(torch.zeros(8))

    def forward(self, inputs):
        x = self.embed(inputs)
        mixed, weights = self.attention(x, x, x, average_attn_weights=False)
        wide = self.picked((weights.unsqueeze(-1), self.output(x).unsqueeze(1).expand(-1, 2, -1, -1)))[1]
        return self.output(x + mixed + self.gate * mixed.tanh()) + 0 * wide.sum(dim=1)


class TestValuesThatAreNotRead:
    HEAD = Intervention(site="attention[1]", where={"axis_1": 0}, rule="zero")

    def test_are_refused(self):
        silent = Intervention(site="attention[0]", rule="zero")
        message = r"interventions.1: the model does not read the value at 'attention\[1\]'; intervene where"
        with pytest.raises(SiteError, match=message):
            look(Users(), INPUTS, interventions=[silent, self.HEAD])
        with pytest.raises(SiteError, match=r"candidates\.off\.0: the model does not read"):
            look(Users(), INPUTS, candidates={"on": [], "off": [self.HEAD]})

    def test_may_be_changed_where_that_is_allowed_and_what_counts_for_nothing_is_read(self):
        allowed = self.HEAD.replace(may_do_nothing=True)
        record = look(Users(), INPUTS, ["attention[1]"], [allowed])
        assert torch.equal(record["output"], look(Users(), INPUTS)["output"])
        assert not record["attention[1]"][:, :, 0].any()
        module = Users()
        change = Intervention(site="picked[1]", where={"axis_3": 2}, rule="add", operand=1.0)
        assert torch.equal(look(module, INPUTS, interventions=[change])["output"], look(module, INPUTS)["output"])

    def test_whole_numbers_are_not_tried(self):
        class Rounded(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Identity()

            def forward(self, inputs):
                return self.inner(inputs.long()).float()

        output = look(Rounded(), torch.ones(2, 3, 1), interventions=[Intervention(site="inner", rule="zero")])
        assert not output["output"].any()


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "record: leaves nothing to record without the output; name a site"),
     ({"record": [PATTERNS], "positions": [1]}, "positions: leaves nothing to record without the output")],
)  # fmt: skip
def test_nothing_to_record(ensemble, given, message):
    with pytest.raises(SpecError, match=message):
        look(ensemble, INPUTS, output=False, **given)


def test_a_record_beyond_the_memory_is_refused_before_it_is_made(ensemble, monkeypatch):
    """A pattern of 2 members, 7 sequences and 2 heads on 6 positions in float64 has 8064 bytes, and there are 8192."""
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2}[name])
    assert look(ensemble, INPUTS, "blocks.0.attn.hook_pattern", output=False)
    with pytest.raises(SpecError, match=r"record: blocks\.1\.attn\.hook_pattern does not fit into the memory; name"):
        look(ensemble, INPUTS, PATTERNS, output=False)
