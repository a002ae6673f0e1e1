"""Published sizes, initial distributions, and what is refused."""

import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models import (
    DecoderSpec,
    Model,
    ModelSpec,
    RecallSpec,
    VectorSpec,
    default_model,
    parse_model,
    register_model,
)

ANCHOR = TaskShape(inputs="tokens", length=9, input_size=201, output_size=201)
RETRIEVAL = TaskShape(inputs="vectors", length=44, input_size=8, output_size=20)


def weights_of(spec: ModelSpec, shape: TaskShape) -> dict[str, torch.Tensor]:
    model = spec.build(shape)
    assert isinstance(model, Model)
    model.initialise(torch.Generator().manual_seed(0))
    return {name: weight.detach() for name, weight in model.named_parameters()}


def test_the_anchor_model_has_5_65_million_parameters():
    count = sum(weight.numel() for weight in DecoderSpec().build(ANCHOR).parameters())
    assert count == 201 * 400 + 9 * 400 + 4 * (4 * 400 * 256 + 2 * 400 * 1200 + 4 * 400) + 400 * 201 + 201
    assert round(count / 1e6, 2) == 5.65


def test_decoder_weights_are_named_and_shaped_as_in_transformer_lens():
    shapes = {name: tuple(weight.shape) for name, weight in weights_of(DecoderSpec(layers=1), ANCHOR).items()}
    assert shapes == {
        "embed.W_E": (201, 400),
        "pos_embed.W_pos": (9, 400),
        "blocks.0.attn.W_Q": (400, 256),
        "blocks.0.attn.W_K": (400, 256),
        "blocks.0.attn.W_V": (400, 256),
        "blocks.0.attn.W_O": (256, 400),
        "blocks.0.mlp.W_in": (400, 1200),
        "blocks.0.mlp.W_out": (1200, 400),
        "blocks.0.ln1.w": (400,),
        "blocks.0.ln1.b": (400,),
        "blocks.0.ln2.w": (400,),
        "blocks.0.ln2.b": (400,),
        "unembed.W_U": (400, 201),
        "unembed.b_U": (201,),
    }


def test_recall_trains_all_but_embeddings_positions_and_unembedding():
    weights = dict(RecallSpec().build(ANCHOR).named_parameters())
    fixed = {name for name, weight in weights.items() if not weight.requires_grad}
    assert fixed == {"embed.W_E", "pos_embed.W_pos", "unembed.W_U"}
    assert weights["blocks.1.mlp.W_in"].shape == (256, 1024)


@pytest.mark.parametrize("spec", [DecoderSpec(), RecallSpec(factored_values=True)], ids=lambda spec: spec.kind)
def test_torch_default_distributions(spec):
    for name, weight in weights_of(spec, ANCHOR).items():
        last = name.rpartition(".")[2]
        if last in ("W_E", "W_pos"):
            assert float(weight.std()) == pytest.approx(1, abs=0.03)
            assert float(weight.abs().max()) > 3
        elif last in ("w", "b"):
            assert (weight == (last == "w")).all()
        else:
            bound = (400 if last == "b_U" else weight.shape[0]) ** -0.5
            assert float(weight.abs().max()) == pytest.approx(bound, rel=0.02)
            assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.12 if last == "b_U" else 0.02)


def test_gpt2_distributions():
    for name, weight in weights_of(VectorSpec(layers=8), RETRIEVAL).items():
        last = name.rpartition(".")[2]
        if weight.ndim == 1:
            assert (weight == (last == "w")).all()
        else:
            expected = 0.02 / 4 if last in ("W_O", "W_out") else 0.02
            assert float(weight.std()) == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize(
    ("spec", "changes", "field"),
    [
        (DecoderSpec, {"output_linear": False}, "head_width"),
        (DecoderSpec, {"output_linear": (True, True, True, False)}, "head_width"),
        (DecoderSpec, {"mask": (True, False)}, "mask"),
        (DecoderSpec, {"layers": 0}, "layers"),
        (DecoderSpec, {"wdith": 3}, "wdith"),
        (VectorSpec, {"heads": 5}, "heads"),
        (VectorSpec, {"initial_scale": 0.0}, "initial_scale"),
        (RecallSpec, {"feed_forward_1": "mpl"}, "feed_forward_1"),
        (RecallSpec, {"hidden": -1}, "hidden"),
    ],
)
def test_impossible_specs_are_refused_at_their_field(spec, changes, field):
    with pytest.raises(SpecError) as refused:
        parse_model({"kind": spec().kind, **changes})
    assert refused.value.field == f"model.{field}"
    assert "\n" not in str(refused.value)


def test_widths_that_follow_are_accepted():
    spec = DecoderSpec(width=201, heads=1, head_width=201, output_linear=False, projection=False)
    assert spec.build(ANCHOR)(torch.zeros(2, 9, dtype=torch.int64)).shape == (2, 9, 201)


def test_without_projection_the_width_must_be_the_output():
    with pytest.raises(SpecError, match=r"width: .*400 is not 201; use width=201"):
        DecoderSpec(projection=False).build(ANCHOR)


@pytest.mark.parametrize(
    ("spec", "shape"), [(DecoderSpec(), RETRIEVAL), (RecallSpec(), RETRIEVAL), (VectorSpec(), ANCHOR)]
)
def test_the_other_kind_of_input_is_refused(spec, shape):
    with pytest.raises(SpecError, match="kind: "):
        spec.build(shape)


def test_a_model_is_parsed_by_its_kind():
    assert parse_model({"kind": "decoder", "layers": 2}) == DecoderSpec(layers=2)
    assert parse_model(RecallSpec()) == RecallSpec()
    with pytest.raises(SpecError, match=r"model\.kind: unknown model 'decodr'; did you mean 'decoder'\?"):
        parse_model({"kind": "decodr"})
    with pytest.raises(SpecError, match=r"recipe\.model\.kind: "):
        parse_model({"layers": 2}, at="recipe.model")


def test_each_kind_of_input_has_a_default():
    assert default_model(ANCHOR) == DecoderSpec()
    assert default_model(RETRIEVAL) == VectorSpec()


def test_a_kind_is_registered_once():
    with pytest.raises(ValueError, match="already registered"):

        @register_model("decoder")
        class Other(DecoderSpec):
            pass
