"""Published sizes, initial distributions, and what is refused."""

import numpy as np
import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models import (
    AssociativeSpec,
    DecoderSpec,
    FNNSpec,
    LSTMSpec,
    Model,
    ModelSpec,
    OneLayerSpec,
    RecallSpec,
    VectorSpec,
    default_model,
    parse_model,
    register_model,
)
from anchorlab.spec import typed
from anchorlab.tasks import task
from anchorlab.training.from_plain_data import declared

ANCHOR = TaskShape(inputs="tokens", length=9, input_size=201, output_size=201)
RETRIEVAL = TaskShape(inputs="vectors", length=44, input_size=8, output_size=20)


def weights_of(spec: ModelSpec, shape: TaskShape) -> dict[str, torch.Tensor]:
    model = spec.build(shape)
    assert isinstance(model, Model)
    model.initialise(torch.Generator().manual_seed(0))
    return {name: weight.detach() for name, weight in model.named_parameters()}


BLOCK = 3600 * 14400 + 14400 + 14400 * 3600 + 3600
COUNTS = {
    "decoder": (
        DecoderSpec(), 5.65e6,
        201 * 400 + 9 * 400 + 4 * (4 * 400 * 256 + 2 * 400 * 1200 + 4 * 400) + 400 * 201 + 201,
    ),
    # anchor functions, section 4.1: four layers of width 400 and two bias vectors of torch's
    "lstm": (LSTMSpec(), 5.3e6, 201 * 400 + 4 * (2 * 400 * 1600 + 2 * 1600) + 400 * 201 + 201),
    "fnn": (FNNSpec(), 416e6, 201 * 400 + 9 * 400 + 4 * BLOCK + 3600 * 400 + 400 + 400 * 201 + 201),
}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTS)
def test_models_have_as_many_parameters_as_published(kind):
    spec, published, expected = COUNTS[kind]
    with torch.device("meta"):  # shapes without memory
        assert sum(weight.numel() for weight in spec.build(ANCHOR).parameters()) == expected
    assert expected == pytest.approx(published, rel=0.01)


def test_decoder_weights_are_named_and_shaped_as_in_transformer_lens():
    shapes = {name: tuple(weight.shape) for name, weight in weights_of(DecoderSpec(layers=1), ANCHOR).items()}
    assert shapes == {
        "embed.W_E": (201, 400), "pos_embed.W_pos": (9, 400), "blocks.0.attn.W_Q": (400, 256),
        "blocks.0.attn.W_K": (400, 256), "blocks.0.attn.W_V": (400, 256), "blocks.0.attn.W_O": (256, 400),
        "blocks.0.mlp.W_in": (400, 1200), "blocks.0.mlp.W_out": (1200, 400), "blocks.0.ln1.w": (400,),
        "blocks.0.ln1.b": (400,), "blocks.0.ln2.w": (400,), "blocks.0.ln2.b": (400,), "unembed.W_U": (400, 201),
        "unembed.b_U": (201,),
    }  # fmt: skip


def test_recall_trains_all_but_embeddings_unembedding_and_positions_that_are_not_learned():
    weights = dict(RecallSpec().build(ANCHOR).named_parameters())
    fixed = {name for name, weight in weights.items() if not weight.requires_grad}
    assert fixed == {"embed.W_E", "pos_embed.W_pos", "unembed.W_U"}
    assert weights["blocks.1.mlp.W_in"].shape == (256, 1024)
    fixed, learned = RecallSpec(), RecallSpec(learned_positions=True)
    weights = dict(learned.build(ANCHOR).named_parameters())
    assert {name for name, weight in weights.items() if not weight.requires_grad} == {"embed.W_E", "unembed.W_U"}
    starts = [weights_of(spec, ANCHOR) for spec in (fixed, learned)]
    assert all(torch.equal(value, starts[1][name]) for name, value in starts[0].items())


TORCH = [DecoderSpec(), RecallSpec(factored_values=True), LSTMSpec(), FNNSpec(width=40, hidden=500)]


@pytest.mark.parametrize("spec", TORCH, ids=lambda spec: spec.kind)
def test_torch_default_distributions(spec):
    weights = weights_of(spec, ANCHOR)
    for name, weight in weights.items():
        last = name.rpartition(".")[2]
        if last in ("W_E", "W_pos"):
            assert float(weight.std()) == pytest.approx(1, abs=0.06 if last == "W_pos" else 0.03)
            assert float(weight.abs().max()) > 2.5
        elif last in ("w", "b"):
            assert (weight == (last == "w")).all()
        else:
            inputs = len(weights[name.replace(".b_", ".W_")])  # a bias is drawn as its matrix is
            bound, few = inputs**-0.5, weight.numel() < 1000
            assert float(weight.abs().max()) == pytest.approx(bound, rel=0.1 if few else 0.02)
            assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.2 if few else 0.05)


@pytest.mark.parametrize("spec", [DecoderSpec(), LSTMSpec(), FNNSpec(width=40, hidden=500)], ids=lambda s: s.kind)
def test_normal_distributions(spec):
    """Standard deviation 1/sqrt(rows) of every map, and 1/sqrt(width) of embeddings."""
    for name, weight in weights_of(spec.replace(initialisation="gamma"), ANCHOR).items():
        last = name.rpartition(".")[2]
        if weight.ndim == 1:
            assert (weight == (last == "w")).all()
        else:
            expected = (weight.shape[1] if last in ("W_E", "W_pos") else len(weight)) ** -0.5
            assert float(weight.std()) == pytest.approx(expected, rel=0.06 if weight.numel() < 4000 else 0.02)
            assert float(weight.abs().max()) > 2.5 * expected


def test_gpt2_distributions():
    """Standard deviation 0.02, and 0.02 / sqrt(2 layers) of the maps into the stream (Radford et al. 2019)."""
    spec = DecoderSpec(layers=8, norm="rms", activation="swiglu", biases=True, tied=True, initialisation="gpt2")
    weights = weights_of(spec, ANCHOR)
    assert "unembed.W_U" not in weights and "blocks.0.mlp.W_gate" in weights
    for name, weight in weights.items():
        last = name.rpartition(".")[2]
        if weight.ndim == 1:
            assert (weight == (last == "w")).all()
        else:
            expected = 0.02 / 4 if last in ("W_O", "W_out") else 0.02
            assert float(weight.std()) == pytest.approx(expected, rel=0.06 if weight.numel() < 4000 else 0.02)


def test_later_fields_of_the_decoder_are_written_only_if_they_differ():
    """Else the addresses of all earlier runs would change."""
    first = {"kind", "layers", "heads", "width", "head_width", "hidden", "residual", "output_linear", "layer_norm"}
    first |= {"feed_forward", "projection", "mask", "shift_values", "initialisation"}
    assert set(DecoderSpec().model_dump(mode="json")) == first
    later = {
        "norm": "rms",
        "positions": "none",
        "activation": "gelu",
        "biases": True,
        "tied": True,
        "attention": "linear",
    }
    for name, value in later.items():
        spec = DecoderSpec(**{name: value})
        written = spec.model_dump(mode="json")
        assert set(written) == first | {name} and written[name] == value
        assert parse_model(written) == spec


@pytest.mark.parametrize("initialisation", ["torch", "gamma", "gpt2"])
def test_equal_weights_are_scores_of_zero_and_leave_all_other_weights_as_drawn(initialisation):
    spec = DecoderSpec(layers=2, width=16, biases=True, initialisation=initialisation)
    softmax, second = (weights_of(one, ANCHOR) for one in (spec, spec.replace(attention=("softmax", "uniform"))))
    zeros = {f"blocks.1.attn.{name}" for name in ("W_Q", "W_K", "b_Q", "b_K")}
    assert all(torch.equal(value, torch.zeros_like(value) if name in zeros else softmax[name])
               for name, value in second.items())  # fmt: skip
    built = spec.replace(attention=("softmax", "uniform")).build(ANCHOR).named_parameters()
    assert {name for name, weight in built if not weight.requires_grad} == zeros


@pytest.mark.parametrize(
    ("spec", "changes", "field"),
    [
        (DecoderSpec, {"output_linear": False}, "head_width"),
        (DecoderSpec, {"output_linear": (True, True, True, False)}, "head_width"),
        (DecoderSpec, {"mask": (True, False)}, "mask"),
        (DecoderSpec, {"layers": 0}, "layers"),
        (DecoderSpec, {"wdith": 3}, "wdith"),
        (DecoderSpec, {"positions": "rotary", "head_width": 5}, "head_width"),
        (DecoderSpec, {"tied": True, "projection": False}, "tied"),
        (DecoderSpec, {"norm": "layer"}, "norm"),
        (DecoderSpec, {"layers": 2, "attention": ("linear", "softmax", "uniform")}, "attention"),
        (DecoderSpec, {"heads": 3}, "heads"),
        (DecoderSpec, {"heads": 0}, "heads"),
        (DecoderSpec, {"width": "64"}, "width"),
        (VectorSpec, {"heads": 5}, "heads"),
        (VectorSpec, {"initial_scale": 0.0}, "initial_scale"),
        (RecallSpec, {"feed_forward_1": "mpl"}, "feed_forward_1"),
        (RecallSpec, {"hidden": -1}, "hidden"),
        (RecallSpec, {"scale_score": False}, "scale_score"),
        (OneLayerSpec, {"start": "nromal"}, "start"),
        (OneLayerSpec, {"embeddings": "normal"}, "embeddings"),
        (LSTMSpec, {"width": 0}, "width"),
        (LSTMSpec, {"width": "64"}, "width"),
        (DecoderSpec, {"projection": "true"}, "projection"),
        (LSTMSpec, {"initialisation": "nromal"}, "initialisation"),
        (FNNSpec, {"hidden_factor": 0}, "hidden_factor"),
    ],
)
def test_impossible_specs_are_refused_at_their_field(spec, changes, field):
    with pytest.raises(SpecError) as refused:
        parse_model({"kind": spec().kind, **changes})
    assert refused.value.field == f"model.{field}"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (4, 400, 64)),  # the paper's
        ({"layers": 2}, (4, 400, 64)),
        ({"width": 32}, (4, 32, 8)),
        ({"heads": 2, "width": 32}, (2, 32, 16)),
        ({"heads": 5}, (5, 400, 80)),
        ({"heads": 3, "width": 32, "head_width": 7}, (3, 32, 7)),
        ({"heads": 1, "width": 32, "head_width": 64}, (1, 32, 64)),
        ({"heads": 3, "width": 10, "head_width": 3}, (3, 10, 3)),  # 10 // 3, which does not follow from them
        ({"head_width": 100}, (4, 400, 100)),
    ],
)
def test_heads_share_the_width_unless_theirs_is_given(given, expected):
    spec = DecoderSpec(**given)
    assert (spec.heads, spec.width, spec.head_width) == expected
    assert parse_model({"kind": "decoder", **given}) == spec
    assert eval(f"DecoderSpec({', '.join(f'{name}={value}' for name, value in spec.__repr_args__())})") == spec
    assert len(dict(spec.__repr_args__())) == len(given)


@pytest.mark.parametrize("width", [64, np.int64(64), 64.0, typed("64")])
def test_numbers_of_every_kind_share_the_width(width):
    assert parse_model({"kind": "decoder", "width": width, "heads": 2}).head_width == 32
    one = declared(task("anchor/identity"), {"layers": 2, "heads": 1}, {}, {}, (0,)).model  # as options do
    assert one == DecoderSpec(layers=2, heads=1) and one.head_width == 400


def test_widths_that_follow_are_accepted_and_a_model_is_parsed_by_its_kind():
    spec = DecoderSpec(width=201, heads=1, head_width=201, output_linear=False, projection=False)
    assert spec.build(ANCHOR)(torch.zeros(2, 9, dtype=torch.int64)).shape == (2, 9, 201)
    assert parse_model({"kind": "decoder", "layers": 2}) == DecoderSpec(layers=2)
    assert parse_model(RecallSpec()) == RecallSpec()
    assert default_model(ANCHOR) == DecoderSpec() and default_model(RETRIEVAL) == VectorSpec()
    with pytest.raises(ValueError, match="already registered"):
        register_model("decoder")(type("Other", (DecoderSpec,), {"__module__": __name__}))


@pytest.mark.parametrize(("switches", "has"), [((True, False), False), ((False, True), True), (True, True)])
@pytest.mark.parametrize("norm", ["pre", "rms"])
def test_a_last_norm_is_there_if_the_last_block_has_norms(norm, switches, has):
    made = DecoderSpec(layers=2, norm=norm, layer_norm=switches).build(TaskShape("tokens", 5, 7, 7))
    assert (made.ln_final is not None) == has
    assert any(name.startswith("ln_final") for name, _ in made.named_parameters()) == has


FOUR = TaskShape(inputs="tokens", length=1, input_size=3, output_size=4)
REFUSED = [
    (lambda: parse_model({"kind": "decodr"}), r"model\.kind: unknown model 'decodr'; did you mean 'decoder'\?"),
    (lambda: parse_model({"layers": 2}, at="recipe.model"), r"recipe\.model\.kind: "),
    (lambda: DecoderSpec(tied=True).build(FOUR), r"tied: .*3 tokens and 4 outputs; use tied=False"),
    (lambda: DecoderSpec(projection=False).build(ANCHOR), r"width: .*400 is not 201; use width=201"),
    (lambda: DecoderSpec(width=8).build(ANCHOR)(torch.zeros(2, 10, dtype=torch.int64)),
     r"^inputs: have 10 positions, and the model reads 9; give at most 9"),
    *((lambda spec=spec: spec(width=3, embeddings="orthonormal").build(FOUR),
       r"^width: 3 coordinates have no room for 4 orthonormal vectors; use at least 4")
      for spec in (OneLayerSpec, AssociativeSpec)),
    *((lambda spec=spec: spec().build(RETRIEVAL), "kind: ")
      for spec in (DecoderSpec, RecallSpec, OneLayerSpec, AssociativeSpec, LSTMSpec, FNNSpec)),
    (lambda: VectorSpec().build(ANCHOR), "kind: "),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_does_not_fit_the_task_is_named(build, message):
    with pytest.raises(SpecError, match=message):
        build()
    for spec in (OneLayerSpec, AssociativeSpec):
        spec(width=3, embeddings="sphere").build(FOUR)


def test_a_specification_at_its_defaults_prints_its_name() -> None:
    assert f"{LSTMSpec()}, {LSTMSpec(layers=2)}" == "LSTMSpec(), LSTMSpec(layers=2)"
