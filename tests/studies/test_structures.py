import math

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import look
from anchorlab.studies.anchor import structures as of
from anchorlab.tasks import task


def built(spec):
    return spec.build(task("anchor/identity").shape)


def test_the_fifteen_structures_are_those_of_the_paper():
    found = of.structures()
    assert len(found) == len(set(found.values())) == 15
    wide = [name for name, spec in found.items() if (spec.width, spec.head_width) == (400, 64)]
    names = list(found)
    assert wide == [*names[:3], *names[-2:]]  # Figure 15's caption: the first three and the last two experiments
    assert all((found[name].width, found[name].head_width) == (201, 201) for name in names[3:-2])
    assert [found[name].layers for name in names] == [2] * 13 + [1, 1]


def test_without_any_component_a_model_is_two_attention_products():
    # Section 5.4: X_out = Attn2 Attn1 X W_V1 W_V2, softmax over all positions, scaled by the square root of the size.
    model = built(of.structures(outputs=201)[of.NONE]).double()
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.data.normal_(0, 0.2, generator=generator)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    inputs = torch.randint(0, 201, (4, 9), generator=generator)
    record = look(model, inputs, record=["hook_embed", "hook_pos_embed"])
    x = (record["hook_embed"] + record["hook_pos_embed"])[0]
    for layer in range(2):
        q, k, v = (x @ weights[f"blocks.{layer}.attn.W_{name}"] for name in "QKV")
        x = torch.softmax(q @ k.mT / math.sqrt(201), dim=-1) @ v
    torch.testing.assert_close(record["output"][0], x, rtol=1e-10, atol=1e-10)


def test_shifted_values_let_one_layer_see_the_next_token():
    model = built(of.structures(width=16, head_width=16)[of.SHIFTED])
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.data.normal_(0, 0.2, generator=generator)
    inputs = torch.randint(20, 100, (1, 9), generator=generator)
    changed = inputs.clone()
    changed[0, 5] = 101
    outputs = look(model, torch.cat([inputs, changed]))["output"][0]
    differs = (outputs[0] - outputs[1]).abs().amax(dim=-1) > 1e-6
    # The value at position 5 is handed to position 4, which position 4 and all later ones may attend to.
    assert differs.tolist() == [False] * 4 + [True] * 5


def test_every_subset_of_the_components_is_a_model_of_its_own():
    found = of.every_subset(width=16, head_width=8)
    switches = {tuple(getattr(spec, name) for name in of.COMPONENTS.values()) for spec in found.values()}
    assert len(found) == len(switches) == 64
    for spec in found.values():
        outputs = built(spec)(torch.zeros(1, 9, dtype=torch.int64))
        assert outputs.shape == (1, 9, 201)


def test_an_unknown_component_is_named():
    with pytest.raises(SpecError, match=r"'softmax'.*residual, linear"):
        of.structure(["softmax"])


def test_claims_read_the_seeds_that_they_name():
    test = {
        of.FULL: torch.tensor([1.0, 0.98]),
        of.BADLY: torch.tensor([0.1, 0.4]),
        of.NONE: torch.tensor([0.9, 1.0]),
        of.ONE_LAYER: torch.tensor([0.0, 0.02]),
    }
    found = of.measure(test)
    assert found["full"].tolist() == [pytest.approx(0.98)]
    assert found["badly"].tolist() == [pytest.approx(0.4)]
    assert found["none"].tolist() == [1.0]
    assert found["fewer-is-better"].tolist() == [pytest.approx(0.8), pytest.approx(0.6)]
    assert found["shifted-values"] is None
