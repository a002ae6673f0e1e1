"""A Python file of studies as people write them, with a task and a model of its own."""

TEXT = '''"""Losses.

Of a model of its own.
"""
from typing import Literal

import torch

import anchorlab as al
from anchorlab.tasks import NoisyAssociative
from anchorlab.tasks.registry import task_family


@task_family("NAME-task")
class Mine(NoisyAssociative):
    """A task that only this file declares."""

    family: Literal["NAME-task"] = "NAME-task"


@al.register_module("NAME-model")
def mine(shape, width: int = 8):
    """A model that only this file declares."""
    return torch.nn.Sequential(torch.nn.Embedding(shape.input_size, width), torch.nn.Linear(width, shape.output_size))


@al.claim("our own question", "none", al.at_most(100))
def finite(seen):
    """The loss is finite.

    Training loss.
    """
    return seen.loss["mine"]


def experiments(setting):
    recipe = al.Recipe(data=al.Stream(), batch=8, duration=setting, evaluation=al.Evaluation(size=10))
    return {"mine": al.Experiment(Mine(), mine(), recipe, al.Members(seeds=2))}


class Seen(al.studies.Reading):
    loss = al.studies.readings.at_end("train", "loss")


STUDY = al.Study(
    "own/NAME", __doc__, [finite], {"quick": al.Profile(6, "A note.")}, trains=experiments, reads=Seen
)
'''


def write(folder, name, more="", text=TEXT):
    """Write a file, whose module has a name that no other test takes."""
    path = folder / f"{name}.py"
    path.write_text(text.replace("NAME", name) + more)
    return path
