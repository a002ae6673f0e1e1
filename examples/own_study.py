"""Weight decay and generalisation.

A small transformer learns the identity function from 500 sequences, under four weight decays.
"""

import sys

import torch

import anchorlab as al

DECAYS = (0.0, 0.1, 0.3, 1.0)


def experiments(steps: int) -> list[al.Experiment]:
    """Return an experiment for each weight decay."""
    return [
        al.Experiment(
            task=al.task("anchor/identity"),
            model=al.DecoderSpec(layers=2, heads=1, width=64),
            recipe=al.Recipe(
                data=al.FixedSample(size=500),
                optimiser=al.AdamW(learning_rate=5e-3, weight_decay=decay),
                schedule=al.WarmupCosine(warmup=steps // 10, horizon=steps, end=0.1),
                duration=steps,
                clip=1.0,
            ),
            members=al.Members(seeds=5),
            label=f"weight decay {decay:g}",
        )
        for decay in DECAYS
    ]


@al.claim("our own question", "no paper", al.at_least(0.05))
def helps(accuracy: torch.Tensor) -> torch.Tensor:
    """Weight decay helps generalisation.

    Test accuracy under the weight decay of the highest mean, minus that without, seed by seed.
    """
    best = accuracy.mean(dim=1).argmax()
    return accuracy[best] - accuracy[0]  # [member]: its mean is the value, its range the spread of the gain


def analyse(runs, steps: int) -> al.Analysis:
    """Draw the test accuracy against weight decay."""
    accuracy = torch.stack([al.at_end(run, "test", "accuracy") for run in runs])  # [decay member]
    curves = {"two layers, 500 sequences": accuracy.T}
    title, x_label, y_label = "Test accuracy against weight decay", "weight decay", "test accuracy"
    return al.Analysis(accuracy, figures=[al.curves_against(title, DECAYS, curves, x_label=x_label, y_label=y_label)])


STUDY = al.Study(
    "own/weight-decay",
    __doc__,
    claims=[helps],
    experiments=experiments,
    analyse=analyse,
    profiles={"quick": al.Profile(400, "Quick profile: 400 steps, 5 seeds.")},
    smoke=10,
)

if __name__ == "__main__":
    findings = al.run_study(STUDY, sys.argv[1] if len(sys.argv) > 1 else "quick")
    print(findings)
    print("report:", al.write_report(findings, "weight_decay.html"))
