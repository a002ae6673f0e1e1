from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, Operand, look
from anchorlab.models import DecoderSpec, Model, Site, identity_tap
from anchorlab.models.edits import Remove, Truncate
from anchorlab.training.ensemble import initialise
from anchorlab.training.executions import member_module

SHAPE = TaskShape("tokens", 6, 11, 11)
SPEC = DecoderSpec(layers=2, heads=2, width=8, head_width=4)
PATTERNS = "blocks.*.attn.hook_pattern"
INPUTS = torch.randint(0, 11, (7, 6), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def ensemble():
    return initialise(SPEC, SHAPE, seeds=[0, 1, 2])


def direct(ensemble, member, inputs=INPUTS):
    """What a member returns and what passes its sites, without the lens."""
    seen = {}

    def tap(site, value):
        seen[site] = value
        return value

    with torch.no_grad():
        output = functional_call(ensemble.template, ensemble.member_weights(member), (inputs,), {"tap": tap})
    return output, seen


class TestEnsembles:
    @pytest.mark.parametrize("batch_size", [1, 3, 512])
    def test_record_equals_a_direct_computation(self, ensemble, batch_size):
        record = look(ensemble, INPUTS, record=["**"], batch_size=batch_size)
        assert set(record) == {*ensemble.template.sites, "output"}
        for member in range(3):
            output, seen = direct(ensemble, member)
            assert torch.allclose(record["output"][member], output, atol=1e-6)
            for site, value in seen.items():
                assert torch.allclose(record[site][member], value, atol=1e-6)

    def test_axes_and_print(self, ensemble):
        record = look(ensemble, INPUTS, record=["blocks.1.attn.hook_pattern"])
        assert record.axes("blocks.1.attn.hook_pattern") == ("member", "batch", "head", "query", "key")
        assert record.axes("output") == ("member", "batch", "position", "output")
        assert record["blocks.1.attn.hook_pattern"].shape == (3, 7, 2, 6, 6)
        assert len(record) == 2
        assert "blocks.1.attn.hook_pattern: member 3, batch 7, head 2, query 6, key 6" in repr(record)
        record = look(ensemble, INPUTS, record=[PATTERNS, "blocks.1.hook_resid_pre"])
        assert repr(record).splitlines() == [
            "Record",
            "  blocks.*.attn.hook_pattern, layers 0..1: member 3, batch 7, head 2, query 6, key 6",
            "  blocks.1.hook_resid_pre: member 3, batch 7, position 6, width 8",
            "  output: member 3, batch 7, position 6, output 11",
        ]

    def test_patterns_of_names(self, ensemble):
        record = look(ensemble, INPUTS, record=[PATTERNS, "blocks.0.hook_resid_p*"])
        patterns = {"blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"}
        assert set(record) == {*patterns, "blocks.0.hook_resid_post", "blocks.0.hook_resid_pre", "output"}

    def test_a_module_is_an_ensemble_of_one(self, ensemble):
        module = SPEC.build(SHAPE)
        module.load_state_dict(ensemble.member_weights(1))
        record = look(module, INPUTS, record=[PATTERNS])
        whole = look(ensemble, INPUTS, record=[PATTERNS])
        for site in record:
            assert torch.equal(record[site][0], whole[site][1])

    def test_operand_per_member_patches_one_member_with_another(self, ensemble):
        site, after = "blocks.0.ln2.hook_normalized", "blocks.1.hook_resid_pre"
        stream = look(ensemble, INPUTS, site)[site]
        operand = Operand(values=stream[[0, 2, 1]], axes=("member", "batch", "position", "width"))
        change = Intervention(site=site, rule="replace", operand=operand)
        changed = look(ensemble, INPUTS, after, change, batch_size=2)
        assert torch.allclose(changed[after], stream[[0, 2, 1]], atol=1e-6)

    def test_recorded_after_the_intervention_which_may_act_on_some_members_alone(self, ensemble):
        change = Intervention(site="blocks.0.attn.hook_pattern", where={"head": 1}, rule="zero")
        pattern = look(ensemble, INPUTS, record=[PATTERNS], interventions=[change])["blocks.0.attn.hook_pattern"]
        assert pattern[:, :, 1].abs().sum() == 0
        assert pattern[:, :, 0].sum().item() == pytest.approx(3 * 7 * 6)
        factors = Operand(values=[1, 0, 1], axes=("member",))
        change = Intervention(site="hook_logits", rule="scale", operand=factors)
        output, plain = look(ensemble, INPUTS, interventions=[change])["output"], look(ensemble, INPUTS)["output"]
        assert torch.equal(output[[0, 2]], plain[[0, 2]]) and output[1].abs().sum() == 0

    def test_weights_and_mode_stay_as_they_are(self, ensemble):
        ensemble = replace(ensemble, template=SPEC.build(SHAPE))  # one with weights of its own
        before = {name: value.clone() for name, value in ensemble.weights.items()}
        own = {name: value.clone() for name, value in ensemble.template.state_dict().items()}
        ensemble.template.train()
        ensemble.template.blocks[0].eval()
        change = Intervention(site="hook_logits", rule="zero")
        look(ensemble, INPUTS, interventions=[change], edits=[Remove(weight="blocks.1.mlp")])
        assert ensemble.template.training
        assert not ensemble.template.blocks[0].training
        assert all(torch.equal(before[name], value) for name, value in ensemble.weights.items())
        after = ensemble.template.state_dict()
        assert all(torch.equal(own[name].nan_to_num(), after[name].nan_to_num()) for name in own)


class TestCandidates:
    ZERO = Intervention(site="blocks.1.attn.hook_pattern", where={"head": 0}, rule="zero")

    def test_each_equals_a_look_of_its_own(self, ensemble):
        edit = Truncate(weight="blocks.0.mlp.W_in", rank=2)
        candidates = {"full": [], "no head": [self.ZERO], "low rank": [edit], "both": [edit, self.ZERO]}
        record = look(ensemble, INPUTS, record=[PATTERNS], candidates=candidates, batch_size=4)
        assert record.candidates == ("full", "no head", "low rank", "both")
        assert record.axes("output") == ("member", "candidate", "batch", "position", "output")
        changes = {
            "full": {}, "no head": {"interventions": self.ZERO}, "low rank": {"edits": edit},
            "both": {"interventions": self.ZERO, "edits": edit},
        }  # fmt: skip
        for name, change in changes.items():
            one, expected = record.candidate(name), look(ensemble, INPUTS, record=[PATTERNS], **change)
            assert one.axes("output") == expected.axes("output")
            for site in expected:
                assert torch.allclose(one[site], expected[site], atol=1e-6)

    def test_removed_block_writes_nothing_and_common_changes_hold_for_all(self, ensemble):
        site, candidates = "blocks.1.hook_mlp_out", {"full": [], "dropped": [Remove(weight="blocks.1.mlp")]}
        record = look(ensemble, INPUTS, site, candidates=candidates)
        assert record.candidate("dropped")[site].abs().sum() == 0
        assert record.candidate("full")[site].abs().sum() > 0
        double = Intervention(site="hook_logits", rule="scale", operand=2)
        one_more = Intervention(site="hook_logits", rule="add", operand=1)
        record = look(ensemble, INPUTS, interventions=[double], candidates={"plain": [], "more": [one_more]})
        plain = look(ensemble, INPUTS)["output"]
        assert torch.allclose(record["output"][:, 0], 2 * plain)
        assert torch.allclose(record["output"][:, 1], 2 * plain + 1)


def test_site_that_is_not_visited_or_twice():
    class Odd(Model):
        def __init__(self):
            super().__init__()
            self.sites = {name: Site(name, ("batch", "width")) for name in ("twice", "never")}

        def initialise(self, generator):
            pass

        def forward(self, inputs, positions=None, tap=identity_tap):
            return tap("twice", tap("twice", inputs)).unsqueeze(1)

    inputs = torch.ones(2, 3)
    with pytest.raises(SiteError, match="site 'never' was not visited"):
        look(Odd(), inputs, record=["never"])
    with pytest.raises(SiteError, match="site 'twice' is visited twice"):
        look(Odd(), inputs, record=["twice"])
    with pytest.raises(SiteError, match=r"interventions.0 \(zero never\) never fired"):
        look(Odd(), inputs, interventions=[Intervention(site="never", rule="zero")])


class Users(nn.Module):
    """A user's own module: nothing of ours, with dropout, an attention that returns a tuple, and a submodule unused."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.drop = nn.Dropout(0.5)
        self.output = nn.Linear(8, 11)
        self.idle = nn.Linear(8, 8)

    def forward(self, inputs):
        x = self.drop(self.embed(inputs))
        mixed, _ = self.attention(x, x, x, average_attn_weights=False)
        return self.output(x + mixed) * 2


class TestUsersModule:
    @pytest.fixture
    def module(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Users()

    def test_is_looked_into(self, module):
        state = torch.get_rng_state()
        axes = {"attention[1]": ("batch", "head", "query", "key")}
        record = look(module, INPUTS, record=["embed", "attention[1]", "drop"], axes=axes, batch_size=3)
        assert torch.equal(state, torch.get_rng_state())
        x = module.embed.weight[INPUTS].detach()
        with torch.no_grad():
            mixed, weights = module.attention(x, x, x, average_attn_weights=False)
            expected = (x + mixed) @ module.output.weight.T + module.output.bias
        assert torch.allclose(record["embed"][0], x)
        assert torch.allclose(record["drop"][0], x)  # dropout does nothing while looking
        assert torch.allclose(record["attention[1]"][0], weights, atol=1e-6)
        assert torch.allclose(record["output"][0], 2 * expected, atol=1e-5)  # what the module returns, not `output`
        assert record.axes("embed") == ("member", "batch", "position", "width")
        assert record.axes("attention[1]") == ("member", "batch", "head", "query", "key")

    def test_is_changed_and_leaves_no_hook_behind(self, module):
        silent = Intervention(site="attention[0]", rule="zero")
        record = look(module, INPUTS, record=["attention[0]"], interventions=[silent])
        with torch.no_grad():
            expected = 2 * module.output(module.embed(INPUTS))
        assert torch.allclose(record["output"][0], expected, atol=1e-6)
        assert record["attention[0]"].abs().sum() == 0
        look(module, INPUTS, record=["embed"])
        with pytest.raises(SiteError):
            look(module, INPUTS, record=["embed", "idle"])
        assert all(not part._forward_hooks for part in module.modules())
        assert module.training
        assert module.drop.training

    def test_batch_that_is_not_first(self):
        class Swapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Identity()

            def forward(self, inputs):
                return self.inner(inputs.transpose(0, 1)).transpose(0, 1)

        with pytest.raises(SiteError, match="whose first axis is not the batch of 7"):
            look(Swapped(), torch.ones(7, 3, 2), record=["inner"])
        assert torch.equal(look(Swapped(), torch.ones(7, 3, 2))["output"][0], torch.ones(7, 3, 2))

    def test_vectors_take_the_precision_of_the_weights_and_values_changed_in_place_are_recorded_as_they_were(self):
        module = nn.Sequential(nn.Linear(2, 3)).double()
        record = look(module, torch.ones(4, 5, 2), record=["0"])
        assert record["output"].dtype == torch.float64
        assert torch.equal(record["0"], record["output"])

        class InPlace(nn.Identity):
            def forward(self, inputs):
                return inputs.zero_()

        record = look(nn.Sequential(nn.Tanh(), InPlace()), torch.ones(1, 2, 2), record=["0"])
        assert record["0"].sum().item() == pytest.approx(4 * torch.ones(()).tanh().item())
        assert record["output"].sum() == 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_as_in_main_memory(ensemble):
    ones = Operand(values=torch.ones(8), axes=("width",))
    changes = [
        Intervention(site="blocks.0.attn.hook_pattern", where={"head": 0, "batch": [1, 5]}, rule="mean"),
        Intervention(site="blocks.1.hook_resid_mid", rule="add", operand=ones),
    ]
    options = {"record": [PATTERNS], "interventions": changes, "positions": torch.tensor([5]), "batch_size": 3}
    here, there = look(ensemble, INPUTS, **options), look(ensemble.to("cuda"), INPUTS, **options)
    for site in here:
        assert there[site].device.type == "cpu"
        assert torch.allclose(here[site], there[site], atol=1e-4)


def test_hooks_of_a_module_see_and_replace_values(ensemble):
    """As `look` with the same intervention, and only within the block."""
    model, seen = member_module(ensemble, 1).eval(), []
    expected = look(ensemble, INPUTS, PATTERNS, Intervention(site="blocks.1.hook_resid_pre", rule="zero"))
    plain = model(INPUTS)
    functions = {"blocks.0.attn.hook_pattern": seen.append, "blocks.1.hook_resid_pre": torch.zeros_like}
    with model.hooks(functions) as hooked:
        assert torch.allclose(hooked(INPUTS), expected["output"][1], atol=1e-6)
    assert torch.allclose(seen[0], expected["blocks.0.attn.hook_pattern"][1], atol=1e-6)
    assert torch.equal(model(INPUTS), plain) and not torch.allclose(plain, expected["output"][1], atol=1e-3)
    with pytest.raises(SpecError, match=r"hooks: unknown site 'blocks.0.hook_resid_pe'; did you mean"):
        model.hooks({"blocks.0.hook_resid_pe": torch.zeros_like}).__enter__()


class Pair(nn.Module):
    def forward(self, inputs):
        return inputs, inputs


IDLE = Intervention(site="blocks.0.attn.hook_pattern", where={"query": 0, "key": 1}, rule="zero")
REFUSED = [
    ({"record": [PATTERNS, "blocks.0.hook_resid_pots"]},
     r"record\.1: unknown site 'blocks.0.hook_resid_pots'; did you mean"),
    ({"record": ["blocks.0.atn.*"]}, r"unknown site 'blocks\.0\.atn\.\*'"),
    ({"inputs": INPUTS[:0]}, "inputs: holds no sequence"),
    ({"batch_size": 0}, "batch_size: 0"),
    ({"candidates": {"full": [], "idle": [IDLE]}},
     r"candidates\.idle\.0 \(zero blocks.0.attn.hook_pattern query=0 key=1\)"),
    ({"candidates": {}}, "candidates: none is given"),
    ({"edits": [Remove(weight="blocks.7.mlp")]}, "unknown weight"),
    ({"model": Pair(), "inputs": torch.ones(1, 2, 2)}, "model: returns a tuple, not a tensor"),
]  # fmt: skip
REFUSED_OF_A_MODULE = [
    ({"record": ["atention"]}, r"unknown site 'atention'; did you mean 'attention'"),
    ({"record": ["attention"]}, r"site 'attention' returns a tuple.*'attention\[0\]'"),
    ({"record": ["attention[2]"]}, r"has no element 2"),
    ({"record": ["idle"]}, "site 'idle' was not visited"),
    ({"record": ["embed"], "axes": {"embed": ("batch", "width")}}, "does not fit its axes"),
    ({"record": ["embed"], "axes": {"embd": ("batch", "position", "width")}},
     "axes: unknown site 'embd'; did you mean 'embed'"),
    ({"interventions": [Intervention(site="embed", where={"head": 0}, rule="zero")]},
     r"where.head: unknown axis of embed: 'head'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [*((None, *one) for one in REFUSED), *((Users(), *one) for one in REFUSED_OF_A_MODULE)],
)
def test_what_cannot_be_looked_at_is_named(ensemble, model, given, message):
    with pytest.raises((SiteError, SpecError), match=message):
        look(**{"model": model or ensemble, "inputs": INPUTS, **given})


def test_what_a_record_lacks_is_named(ensemble):
    record = look(ensemble, INPUTS, candidates={"full": []})
    with pytest.raises(SiteError, match="unknown site 'hook_logits'"):
        _ = record["hook_logits"]
    with pytest.raises(SpecError, match="candidate: unknown candidate 'ful'; did you mean 'full'"):
        record.candidate("ful")
