"""Memories in weights: hand-built ones, whose forms are known entry by entry, and random ones by numpy."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.lens import memory, memory_along
from anchorlab.models import AssociativeSpec, DecoderSpec, RecallSpec
from anchorlab.models.feedforward import FeedForward
from anchorlab.runs import Store
from anchorlab.tasks import NoisyRecall
from anchorlab.training import SGD, Evaluation, Experiment, Members, Recipe, Stream
from anchorlab.training.ensemble import initialise
from anchorlab.training.recipe import Times
from tests.lens.hand_built import stacked

TOKENS, LENGTH, WIDTH, NOISE = 6, 5, 24, 5  # the noise is the last of the tokens
SHAPE = TaskShape("tokens", LENGTH, TOKENS, TOKENS)
MEMBERS = ((2, 1, 0.5), (4, 2, 2.0))  # of the hand-built: trigger, how far back, how much the noise is avoided

PREVIOUS = ("pos_embed.W_pos @ blocks.0.attn.W_KQ", "pos_embed.W_pos")
MATCHES = ("embed.W_E @ blocks.0.attn.W_V", "embed.W_E @ blocks.1.attn.W_KQ")
NOISE_FORM = ("embed.W_E @ blocks.1.mlp", "unembed.W_U.T")
SIGNAL = ("embed.W_E @ blocks.1.attn.W_V", "unembed.W_U.T")


def solver(trigger: int, back: int, avoids: float, kind: str = "mlp") -> nn.Module:
    """The model that appendix A.1 of the paper writes down, in orthonormal vectors along no axis.

    Layer 0 attends `back` positions back and brings what stands there as r; layer 1 asks for the trigger as r, and
    avoids the noise by `avoids`; its values and its feed-forward layer write the signal and the noise.
    """
    module = RecallSpec(width=WIDTH, hidden=2, feed_forward_2=kind).build(SHAPE)
    generator = torch.Generator().manual_seed(trigger)
    basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)).Q
    e, p, u, r = basis[:TOKENS], basis[6:11], basis[11:17], basis[17:23]
    for parameter in module.parameters():
        parameter.data = torch.zeros_like(parameter, dtype=torch.float64)
    weights = {name: parameter.data for name, parameter in module.named_parameters()}
    weights["embed.W_E"][:], weights["pos_embed.W_pos"][:], weights["unembed.W_U"][:] = e, p, u.T
    weights["blocks.0.attn.W_KQ"][:] = sum(torch.outer(p[t], p[t - back]) for t in range(back, LENGTH))
    weights["blocks.0.attn.W_V"][:] = e.T @ r
    weights["blocks.1.attn.W_KQ"][:] = torch.outer(e[trigger], r[trigger] - avoids * e[NOISE])
    weights["blocks.1.attn.W_V"][:] = sum(torch.outer(e[z], u[z]) for z in range(NOISE))
    if kind == "mlp":
        # The first neuron fires for the trigger. The second would, without ReLU, take the signal 0 away from it.
        weights["blocks.1.mlp.W_in"][:, 0], weights["blocks.1.mlp.W_in"][:, 1] = e[trigger], -e[trigger]
        weights["blocks.1.mlp.W_out"][0], weights["blocks.1.mlp.W_out"][1] = 3 * u[NOISE], 7 * u[0]
    else:
        weights["blocks.1.mlp.W_F"][:] = torch.outer(e[trigger], 3 * u[NOISE])
    return module


def zeros_but(size: int, entries: dict[tuple[int, int], float]) -> torch.Tensor:
    form = torch.zeros(size, size, dtype=torch.float64)
    for place, value in entries.items():
        form[place] = value
    return form


def is_near(value: torch.Tensor, expected: torch.Tensor) -> bool:
    return value.shape == expected.shape and bool((value - expected).abs().max() < 1e-12)


@pytest.fixture(scope="module", params=["mlp", "linear"])
def solvers(request):
    return stacked(*(solver(*member, request.param) for member in MEMBERS))


FORMS = {
    "values of layer 1 predict each token but the noise": (SIGNAL, lambda *_: {(z, z): 1.0 for z in range(NOISE)}),
    "the feed-forward layer predicts the noise": (NOISE_FORM, lambda trigger, *_: {(trigger, NOISE): 3.0}),
    "layer 1 matches the trigger alone": (MATCHES, lambda trigger, *_: {(trigger, trigger): 1.0}),
    "layer 1 avoids the noise": (
        ("embed.W_E @ blocks.1.attn.W_KQ", "embed.W_E"),
        lambda trigger, _, avoids: {(trigger, NOISE): -avoids},
    ),
    "layer 0 asks for the position before": (
        PREVIOUS,
        lambda _, back, __: {(t, t - back): 1.0 for t in range(back, LENGTH)},
    ),
}


class TestHandBuilt:
    @pytest.mark.parametrize(("sides", "entries"), FORMS.values(), ids=FORMS)
    def test_forms_entry_by_entry(self, solvers, sides, entries):
        size = LENGTH if sides == PREVIOUS else TOKENS
        expected = [zeros_but(size, entries(*member)) for member in MEMBERS]
        assert is_near(memory(solvers, *sides), torch.stack(expected))

    def test_a_module_is_an_ensemble_of_one(self):
        module = solver(*MEMBERS[1])
        assert is_near(memory(module, *MATCHES), zeros_but(TOKENS, {(4, 4): 1.0})[None])
        assert is_near(memory(module, *NOISE_FORM), zeros_but(TOKENS, {(4, NOISE): 3.0})[None])
        assert not memory(module, *NOISE_FORM).requires_grad


def by_numpy(model):
    """Each member with its weights as arrays."""
    for member in range(model.size):
        yield member, {name: value.numpy() for name, value in model.member_weights(member).items()}


class TestByNumpy:
    def test_chains_of_matrices_transposed_and_with_factored_values(self):
        model = initialise(DecoderSpec(layers=1, heads=2, width=8, head_width=3), SHAPE, [0, 1], dtype=torch.float64)
        left = " embed.W_E@blocks.0.attn.W_Q @ blocks.0.attn.W_K.T"  # both heads at once
        found = memory(model, left, "unembed.W_U.T")
        assert found.shape == (2, TOKENS, TOKENS)
        for member, one in by_numpy(model):
            w_q, w_k = one["blocks.0.attn.W_Q"], one["blocks.0.attn.W_K"]
            expected = one["embed.W_E"] @ w_q @ w_k.T @ one["unembed.W_U"]
            assert np.abs(found[member].numpy() - expected).max() < 1e-12
        model = initialise(RecallSpec(width=7, hidden=9, factored_values=True), SHAPE, [0, 1], dtype=torch.float64)
        found = memory(model, "blocks.0.mlp.W_in.T", "pos_embed.W_pos @ blocks.0.attn.W_V @ blocks.0.attn.W_O")
        assert found.shape == (2, 9, LENGTH)
        for member, one in by_numpy(model):
            brought = one["pos_embed.W_pos"] @ one["blocks.0.attn.W_V"] @ one["blocks.0.attn.W_O"]
            assert np.abs(found[member].numpy() - one["blocks.0.mlp.W_in"].T @ brought.T).max() < 1e-12

    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    def test_a_layer_of_a_users_own_module_with_its_biases(self, activation):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Parameter(torch.empty(4, 3))
                self.layer = FeedForward("layer", 3, 6, activation, biases=True)

        module, generator = Own().double(), torch.Generator().manual_seed(0)
        for parameter in module.parameters():
            parameter.data.normal_(generator=generator)
        one = {name: value.detach().numpy() for name, value in module.named_parameters()}
        pre = one["table"] @ one["layer.W_in"] + one["layer.b_in"]
        curve = np.tanh(math.sqrt(2 / math.pi) * (pre + 0.044715 * pre**3))
        post = np.maximum(pre, 0) if activation == "relu" else pre * (1 + curve) / 2
        expected = (post @ one["layer.W_out"] + one["layer.b_out"]) @ one["table"].T
        assert np.abs(memory(module, "table @ layer", "table").numpy() - expected).max() < 1e-12

    def test_the_form_of_an_associative_memory_is_its_logits(self):
        model = initialise(AssociativeSpec(width=12), TaskShape("tokens", 1, 5, 6), [0, 1, 2])
        tokens = torch.arange(5).unsqueeze(1)
        for member, form in enumerate(memory(model, "embed.W_E @ memory", "unembed.W_U.T")):
            logits = torch.func.functional_call(model.template, model.member_weights(member), (tokens,))
            assert torch.allclose(form, logits.squeeze(1), atol=1e-6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = Recipe(
        data=Stream(), optimiser=SGD(learning_rate=0.5), batch=8, duration=4, evaluation=Evaluation(every=4, size=10),
        checkpoints=Times(every=2), precision="float64",
    )  # fmt: skip
    task = NoisyRecall(source="uniform", tokens=5, length=8)
    experiment = Experiment(task, RecallSpec(width=10, hidden=14), recipe, Members(seeds=(3, 4)))
    return run([experiment], Store(tmp_path_factory.mktemp("memories")), workers=1)[0]


def test_every_checkpoint_has_its_own_form_and_others_are_named(trained):
    steps, forms = memory_along(trained, *NOISE_FORM)
    assert steps == [0, 2, 4] and forms.shape == (3, 2, 6, 6)
    for step, form in zip(steps, forms, strict=True):
        kept = {name: value.numpy() for name, value in trained.run.read_checkpoint(step).items()}
        hidden = np.maximum(kept["embed.W_E"] @ kept["blocks.1.mlp.W_in"], 0)
        expected = hidden @ kept["blocks.1.mlp.W_out"] @ kept["unembed.W_U"]
        assert np.abs(form.numpy() - expected).max() < 1e-12
    assert not torch.equal(forms[0], forms[1]) and not torch.equal(forms[1], forms[2])
    steps, forms = memory_along(trained, *PREVIOUS, steps=(4, 0))
    assert steps == [4, 0] and forms.shape == (2, 2, 8, 8)
    kept = trained.run.read_checkpoint(4)
    expected = kept["pos_embed.W_pos"] @ kept["blocks.0.attn.W_KQ"] @ kept["pos_embed.W_pos"].mT
    assert is_near(forms[0], expected)
    with pytest.raises(SpecError, match=r"^steps: names no checkpoint; give at least one, or leave steps out$"):
        memory_along(trained, *SIGNAL, steps=[])
    with pytest.raises(StoreError, match="no checkpoint of step 3; there are 0, 2, 4"):
        memory_along(trained, *SIGNAL, steps=[0, 3])


UNKNOWN = "unknown matrix or feed-forward layer"
ORDER = "write the parts in the order in which vectors pass them"
MISTAKES = [
    ("embed.W_F @ blocks.1.mlp", "unembed.W_U.T", f"left: {UNKNOWN} 'embed.W_F'; did you mean 'embed.W_E'?"),
    ("embed.W_E @ blocks.1.mpl", "unembed.W_U.T", f"left: {UNKNOWN} 'blocks.1.mpl'; did you mean 'blocks.1.mlp'?"),
    ("embed.W_E", "unembed.W_U.t", f"right: {UNKNOWN} 'unembed.W_U.t'; did you mean 'unembed.W_U'?"),
    ("embed.W_E @ blocks.1.mlp.T", "unembed.W_U.T", f"left: {UNKNOWN} 'blocks.1.mlp.T'; did you mean 'blocks.1.mlp'?"),
    (
        "blocks.1.mlp",
        "unembed.W_U.T",
        "left: begins with 'blocks.1.mlp', a layer, which has no rows; begin with a matrix whose rows are vectors",
    ),
    ("embed.W_E", "embed.W_E @ blocks.1.mlp.W_out",
     f"right: 'blocks.1.mlp.W_out' takes vectors of width 9, not 7; {ORDER}"),
    ("unembed.W_U @ blocks.1.mlp", "embed.W_E", f"left: 'blocks.1.mlp' takes vectors of width 7, not 6; {ORDER}"),
    ("embed.W_E", "unembed.W_U",
     "right: ends with vectors of width 6, left with 7; write a matrix with .T to transpose it"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "told"), MISTAKES)
def test_a_mistake_is_told_in_one_line(left, right, told):
    with pytest.raises(SpecError) as caught:
        memory(initialise(RecallSpec(width=7, hidden=9), SHAPE, [0]), left, right)
    assert str(caught.value) == told
    with pytest.raises(SpecError, match=r"^right: unknown matrix or feed-forward layer 'unembed.b_U'"):  # a bias
        memory(
            initialise(DecoderSpec(layers=1, heads=1, width=8, head_width=8), SHAPE, [0]), "embed.W_E", "unembed.b_U"
        )
