"""Weight decay and generalisation.

A small transformer learns the identity function from 500 sequences, under four weight decays.
"""

import sys

import anchorlab as al
from anchorlab.studies import Reading, draws, readings

DECAYS = (0.0, 0.1, 0.3, 1.0)


def experiments(steps: int) -> dict[float, al.Experiment]:
    """Return an experiment for each weight decay."""
    task, model, members = al.task("anchor/identity"), al.DecoderSpec(layers=2, heads=1, width=64), al.Members(seeds=5)
    schedule = al.WarmupCosine(warmup=steps // 10, horizon=steps, end=0.1)
    recipe = al.Recipe(data=al.FixedSample(size=500), schedule=schedule, duration=steps, clip=1.0)
    return {
        decay: al.Experiment(
            task,
            model,
            recipe.replace(optimiser=al.AdamW(5e-3, weight_decay=decay)),
            members,
            f"weight decay {decay:g}",
        )
        for decay in DECAYS
    }


class Seen(Reading):
    """What is read of each run, by its weight decay."""

    accuracy = readings.at_end("test", "accuracy")


@al.claim("our own question", "no paper", al.at_least(0.05))
def helps(seen: Seen):
    """Weight decay helps generalisation.

    Test accuracy under the weight decay of the highest mean, minus that without, seed by seed.
    """
    best = max(DECAYS, key=lambda decay: seen.accuracy[decay].mean())
    return seen.accuracy[best] - seen.accuracy[0.0]  # [member]: its mean is the value, its range the spread of the gain


STUDY = al.Study(
    "own/weight-decay",
    __doc__,
    claims=[helps],
    profiles={"quick": al.Profile(400)},
    trains=experiments,
    reads=Seen,
    draws=[draws.against("Test accuracy against weight decay", Seen.accuracy, "weight decay", "test accuracy")],
    smoke=10,
)

if __name__ == "__main__":
    findings = al.run_study(STUDY, sys.argv[1] if len(sys.argv) > 1 else "quick")
    print(findings)
    print("report:", al.write_report(findings, "weight_decay.html"))
