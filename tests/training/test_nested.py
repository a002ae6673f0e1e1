"""Nested samples: the training set of a smaller size is the beginning of a larger one."""

import pytest
import torch

from anchorlab.rng import child_seed
from anchorlab.tasks import task
from anchorlab.tasks.registry import task_names
from anchorlab.training import Experiment, FixedSample, Members
from anchorlab.training.feed import make_feed, nested_sample
from tests.small_experiments import IDENTITY, SAMPLE, experiment

NESTED = SAMPLE.replace(data=FixedSample(size=300, nested=True), batch=20)


def tensors(batch):
    return [batch.inputs, batch.targets, batch.answers, *([] if batch.group is None else [batch.group])]


@pytest.mark.parametrize("name", task_names())
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(name):
    one = task(name)
    draw = one.sample if one.nested else lambda split, size, seed: nested_sample(one, size, seed)
    few, many, others = draw("train", 100, 5), draw("train", 300, 5), draw("train", 300, 6)
    assert len(few) == 100 and len(many) == len(others) == 300
    assert all(torch.equal(a, b[:100]) for a, b in zip(tensors(few), tensors(many), strict=True))
    assert not torch.equal(many.inputs, others.inputs)
    if few.positions.ndim == 2:
        assert torch.equal(few.positions, many.positions[:100]) and len(many.positions) == 300


def test_the_first_block_is_a_sample_and_blocks_double():
    found = nested_sample(IDENTITY, 200, 5)
    blocks = [IDENTITY.sample("train", size, child_seed(5, "block", place)) for place, size in enumerate((64, 64, 128))]
    assert torch.equal(found.inputs, torch.cat([one.inputs for one in blocks])[:200])


def test_members_of_several_sizes_and_experiments_of_several_sizes_share_the_beginning():
    def feed(recipe, **members):
        found = Members(seeds=(0, 1), hold={"data": 7}, **members)
        return make_feed(IDENTITY, recipe, found, torch.device("cpu"), torch.float64)

    both, one = feed(NESTED, data_size=(100, 200)), feed(NESTED.replace(data=FixedSample(size=140, nested=True)))
    plain = feed(NESTED.replace(data=FixedSample(size=300)), data_size=(100, 200))
    assert torch.equal(both._data.inputs[0, :100], both._data.inputs[1, :100])
    assert torch.equal(both._data.inputs[1, :140], one._data.inputs[0])
    assert not torch.equal(plain._data.inputs[0, :100], plain._data.inputs[1, :100])
    assert torch.equal(both.first[0].inputs, both._data.inputs[0, :24])  # what the evaluation of training reads


def test_a_task_that_is_nested_already_draws_as_before():
    sums = task("classics/modular-arithmetic", prime=11)
    size, seeds, cpu = sums.training_pairs, Members(seeds=(3,)), torch.device("cpu")
    feeds = [
        make_feed(sums, SAMPLE.replace(data=FixedSample(size=size, nested=nested)), seeds, cpu, torch.float64)
        for nested in (True, False)
    ]
    assert torch.equal(feeds[0]._data.inputs, feeds[1]._data.inputs)
    assert len(torch.unique(feeds[0]._data.inputs[0], dim=0)) == size


def test_only_nested_samples_have_other_addresses():
    plain = experiment()
    assert "nested" not in plain.to_json()["recipe"]["data"]
    nested = experiment(data=FixedSample(size=40, nested=True))
    assert nested.cell.address != plain.cell.address and Experiment.from_json(nested.to_json()) == nested
