"""The precision of a GPU's products, which is a setting of the process."""

import pytest
import torch

from anchorlab.models import full_float32
from anchorlab.training import fit
from tests.small_experiments import KINDS, experiment


@pytest.fixture
def cudnn():
    before = torch.backends.cudnn.allow_tf32
    yield torch.backends.cudnn
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("allowed", [True, False])
def test_no_tf32_inside_and_as_before_outside(cudnn, allowed):
    cudnn.allow_tf32 = allowed
    with pytest.raises(KeyError), full_float32():
        assert not cudnn.allow_tf32
        raise KeyError
    assert cudnn.allow_tf32 is allowed


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="this torch has one setting for both operations")
def test_a_choice_for_one_operation_is_kept(cudnn):
    cudnn.conv.fp32_precision = "ieee"
    with full_float32():
        assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")
    cudnn.conv.fp32_precision = "tf32"


def test_members_are_trained_without_tf32(cudnn, monkeypatch):
    cudnn.allow_tf32 = True
    seen = []
    _, model = KINDS["decoder"]
    module = type(model.build(KINDS["decoder"][0].shape))
    forward = module.forward

    def looks(*arguments, **named):
        seen.append(torch.backends.cudnn.allow_tf32)
        return forward(*arguments, **named)

    monkeypatch.setattr(module, "forward", looks)
    fit(experiment("decoder", duration=1))
    assert seen
    assert not any(seen)
