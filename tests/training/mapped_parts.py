"""A mapped training taken apart, so that a test can watch or change one part of it."""

import torch

from anchorlab.training import Members
from anchorlab.training.ensemble import initialise
from anchorlab.training.executions import MappedExecution
from anchorlab.training.feed import make_feed
from anchorlab.training.flat_optimiser import FlatOptimiser, FlatWeights

MEMBERS = Members(seeds=(4, 5, 6), learning_rate=(1e-2, 3e-3, 1e-3), weight_decay=(0.0, 0.3, 0.1), clip=(0.1, 0.5, 9.0))


def parts(one, device="cpu", dtype=torch.float64, graphs=None):
    """The ensemble, the optimiser, the feed and the execution of an experiment's members on a device."""
    device = torch.device(device)
    ensemble = initialise(one.model, one.task.shape, one.members.seeds, dtype).to(device)
    flat = FlatWeights({name: ensemble.weights[name] for name in ensemble.trainable})
    ensemble = ensemble.with_weights({**ensemble.weights, **flat.views})
    optimiser = FlatOptimiser(one.recipe, one.members, flat)
    feed = make_feed(one.task, one.recipe, one.members, flat.values.device, dtype)
    return ensemble, optimiser, feed, MappedExecution(ensemble, optimiser, one.task.losses, False, graphs)


def train(one, feed, execution, steps, active=(True, True, True), first=0):
    for step in range(first, first + steps):
        execution.step(feed.at(step), one.recipe.schedule.factor(step), active, step)
