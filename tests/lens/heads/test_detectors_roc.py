"""Ideal heads with noise against random ones; the heads are built by hand in `benchmarks/detectors.py`."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from anchorlab.lens import describe

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "detectors.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmark_of_detectors", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def told(script):
    return {one.detector: one for one in script.tell(sequences=100, heads=25)}


ALL = ["shift", "previous_token", "self_attending", "next_token", "uniform", "fixed_position", "induction", "matching"]
ALL += ["first_token", "anchor_attending", "broadcast_profile", "broadcast"]


def test_every_detector_is_tried(told):
    assert sorted(told) == sorted(ALL)


@pytest.mark.parametrize("detector", ALL)
def test_area_under_the_roc_curve(script, told, detector):
    one = told[detector]
    assert one.ideal.shape == one.random.shape == (len(script.SPREADS), 25)
    assert all(one.area(spread) >= 0.99 for spread in range(len(script.SPREADS)))
    # at half noise of single keys, uniform attention is as far from uniform as softly random attention is
    assert one.area() >= (0.98 if detector == "uniform" else 0.99)


@pytest.mark.parametrize("detector", ["shift", "fixed_position", "broadcast_profile"])
def test_the_offset_is_found_under_noise(told, detector):
    assert told[detector].right_offset == 1


def test_the_area_by_hand(script):
    one = script.Told("any", 1, torch.tensor([[0.9, 0.4]]), torch.tensor([[0.4, 0.1]]), 1.0, None)
    assert one.area() == one.area(0) == (1 + 1 + 0.5 + 1) / 4


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [9, 14, 20])
def test_random_heads_hardly_ever_set_one_off(script, length, causal):
    assert script.false_alarms(length, sequences=100, heads=25, causal=causal) <= 0.01


@pytest.mark.parametrize("causal", [True, False])
def test_ideal_heads_are_called_by_their_names(script, causal):
    inputs = script.draw_inputs(100, script.LENGTH, torch.Generator().manual_seed(0))
    ideal = script.ideal_heads(inputs, causal)
    labels = describe(script.table(torch.stack(list(ideal.values()), dim=1), inputs))["label"].to_list()
    expected = {
        "shift": "shift 2",
        "previous_token": "shift 1",
        "self_attending": "self",
        "uniform": "uniform",
        "induction": "induction",
        "matching": "matching",
        "first_token": "first token",
        "fixed_position": "position 3",
        "anchor_attending": "broadcast from anchor",
        "broadcast_profile": "broadcast from anchor+1",
        "broadcast": "broadcast from source",
        "next_token": "next",
    }
    assert dict(zip(ideal, labels, strict=True)) == {name: expected[name] for name in ideal}
