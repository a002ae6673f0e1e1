"""The faster float32 products are float32 products, denormal numbers are zero, and a GPU's products are as exact."""

import pytest
import torch

from anchorlab.engine import job
from anchorlab.models import cpu, denormals_as_zero, fast_float32, full_float32
from anchorlab.runs import Store
from anchorlab.training import fit
from tests.small_experiments import KINDS, experiment


def switch():
    return torch.backends.mkldnn.matmul.fp32_precision


def test_products_keep_the_precision_of_float32():
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(3, 90, 400, generator=generator), torch.randn(3, 400, 120, generator=generator)
    exact = left.double() @ right.double()
    with fast_float32():
        for product in (left @ right, torch.stack([left[i] @ right[i] for i in range(3)])):
            assert float((product - exact).abs().max()) < 400 * 2**-24 * float(exact.abs().max())


@pytest.mark.parametrize("rounds_at", [(64, 8, 8, 8), (1, 16, 16, 16), (3, 90, 400, 120), (1, 512, 400, 1200)])
@pytest.mark.parametrize("batched", [True, False])
def test_rounding_at_one_size_alone_is_noticed(rounds_at, batched, monkeypatch):
    """A library may round to bfloat16 where it has a faster way, and nowhere else."""
    products, rows, summed, columns = rounds_at
    shapes = (products, rows, summed), (products, summed, columns)
    bmm, matmul = torch.bmm, torch.Tensor.__matmul__

    def rounding(product, expected):
        def called(left, right):
            if (tuple(left.shape), tuple(right.shape)) == expected and left.dtype == torch.float32:
                return product(left.bfloat16(), right.bfloat16()).float()
            return product(left, right)

        return called

    assert cpu._keeps_float32.__wrapped__()
    if batched:
        monkeypatch.setattr(torch, "bmm", rounding(bmm, shapes))
    else:
        monkeypatch.setattr(torch.Tensor, "__matmul__", rounding(matmul, tuple(shape[1:] for shape in shapes)))
    assert not cpu._keeps_float32.__wrapped__()


def test_the_switch_is_put_back():
    before = switch()
    with pytest.raises(RuntimeError, match="inside"), fast_float32():
        raise RuntimeError("inside")
    assert switch() == before
    with fast_float32(), fast_float32():
        pass
    assert switch() == before


def smallest_kept() -> float:
    """Whether a number below the normal ones survives a product, in the calling thread."""
    return float(torch.tensor([1e-39]) * 1.0)


@pytest.mark.parametrize("before", [False, True])
def test_denormal_numbers_are_zero_inside_and_as_before_after(before):
    torch.set_flush_denormal(before)
    try:
        with pytest.raises(RuntimeError, match="inside"), denormals_as_zero():
            assert smallest_kept() == 0.0
            assert float(torch.tensor([2e-38]) * 1.0) > 0.0  # a normal number
            raise RuntimeError("inside")
        assert (smallest_kept() == 0.0) is before
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.untyped  # what stands in for a training
@pytest.mark.parametrize("threads", [1, 2])
def test_a_job_of_one_thread_takes_them_for_zero(threads, monkeypatch, tmp_path):
    seen, one = [], experiment("decoder", duration=1)
    monkeypatch.setattr(job, "fit", lambda *_, **__: seen.append(smallest_kept()) or Trained())
    with Store(tmp_path).open(one.cell) as directory:
        directory.plan({"chunks": [[0, 1, 2]], "threads": threads, "execution": "auto"})
    job.Job(str(tmp_path), ((one.cell.address, 0),), "cpu", 60.0).train(lambda progress: None)
    assert [one == 0.0 for one in seen] == [threads == 1]
    assert smallest_kept() > 0.0


class Trained:
    rows = ()


# The precision of a GPU's products, which is a setting of the process.
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
