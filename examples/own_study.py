"""Weight decay and generalisation.

A small transformer learns the identity function from 500 sequences, under four weight decays.
"""

import anchorlab as al
from anchorlab.studies import Reading, draws, quick, readings

DECAYS = (0.0, 0.1, 0.3, 1.0)


def experiments(steps: int) -> dict[float, al.Experiment]:
    """Return an experiment for each weight decay."""
    task, model, members = al.task("anchor/identity"), quick.quick_model(), al.Members(seeds=5)
    recipes = {decay: quick.quick_recipe(500, steps, weight_decay=decay) for decay in DECAYS}
    return {decay: al.Experiment(task, model, recipe, members) for decay, recipe in recipes.items()}


class Seen(Reading):
    """What is read of each run, by its weight decay."""

    accuracy = readings.at_end("test", "accuracy")


@al.claim("our own question", "no paper", al.at_least(0.05))
def helps(seen: Seen):
    """Weight decay helps generalisation.

    Test accuracy under the weight decay of the highest mean, minus that without, seed by seed.
    """
    best = max(DECAYS, key=lambda decay: seen.accuracy[decay].mean())
    return seen.accuracy[best] - seen.accuracy[0.0]  # [seed]: its mean is the value


DRAWN = draws.against("Test accuracy against weight decay", Seen.accuracy, "weight decay", "test accuracy")
STUDY = al.Study("own/weight-decay", __doc__, [helps], {"quick": al.Profile(400)}, experiments, Seen, [DRAWN], smoke=10)
