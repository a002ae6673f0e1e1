"""The faster float32 products are float32 products."""

import pytest
import torch

from anchorlab.models import fast_float32


def switch():
    return torch.backends.mkldnn.matmul.fp32_precision


def test_products_keep_the_precision_of_float32():
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(3, 90, 400, generator=generator), torch.randn(3, 400, 120, generator=generator)
    exact = left.double() @ right.double()
    with fast_float32():
        for product in (left @ right, torch.stack([left[i] @ right[i] for i in range(3)])):
            assert float((product - exact).abs().max()) < 400 * 2**-24 * float(exact.abs().max())


def test_the_switch_is_put_back():
    before = switch()
    with pytest.raises(RuntimeError, match="inside"), fast_float32():
        raise RuntimeError("inside")
    assert switch() == before
    with fast_float32(), fast_float32():
        pass
    assert switch() == before
