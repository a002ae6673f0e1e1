"""A study of one's own: does weight decay decide whether a small transformer generalises on the identity function?

Copy this file, change the grid, the analysis and the claims.
"""

import sys
from collections.abc import Sequence

import anchorlab as al
from anchorlab.findings.findings import Claim, Findings, LineFigure, Provenance, line
from anchorlab.studies import Profile, Study
from anchorlab.studies.kit import member_values, spread
from anchorlab.training import Experiment, TrainedRun

DECAYS = (0.0, 0.1, 0.3, 1.0)

CLAIM = Claim(
    id="own/weight-decay/helps",
    statement="Weight decay helps generalisation",
    source="our own question",
    paper="no paper",
    measured_as="best mean test accuracy over weight decays, minus that without",
    band=(0.05, None),
)


def profile(steps: int, seeds: int, note: str) -> Profile:
    """The grid: one experiment per weight decay."""

    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task=al.task("anchor/identity"),
                model=al.DecoderSpec(layers=2, heads=1, width=64),
                recipe=al.Recipe(
                    data=al.FixedSample(size=500),
                    optimiser=al.AdamW(learning_rate=5e-3, weight_decay=decay),
                    schedule=al.WarmupCosine(warmup=steps // 10, horizon=steps, end=0.1),
                    duration=steps,
                    clip=1.0,
                ),
                members=al.Members(seeds=tuple(range(seeds))),
                label=f"identity, weight decay {decay:g}",
            )
            for decay in DECAYS
        ]

    return Profile(experiments, note)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The runs come in the order of the grid."""
    accuracy = [member_values(run, "test", "accuracy") for run in runs]
    gain = max(float(values.mean()) for values in accuracy) - float(accuracy[0].mean())
    figure = LineFigure(
        title="Test accuracy against weight decay",
        caption="Mean over seeds; the band reaches from the lowest to the highest.",
        x_label="weight decay",
        y_label="test accuracy",
        lines=(line("two layers, 500 sequences", DECAYS, list(zip(*accuracy, strict=True))),),
        y_range=(0.0, 1.0),
    )
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary=note,
        profile=provenance.profile,
        provenance=provenance,
        claims=(CLAIM.judge(gain, provenance.profile, spread(accuracy[0])),),
        figures=(figure,),
    )


STUDY = Study(
    name="own/weight-decay",
    title="Weight decay and generalisation",
    claims=(CLAIM,),
    profiles={
        "quick": profile(steps=400, seeds=5, note="Quick profile: 400 steps, 5 seeds."),
        "smoke": profile(steps=10, seeds=2, note="Smoke profile: it only exercises the code."),
    },
    analyse=analyse,
)

if __name__ == "__main__":
    findings = al.run_study(STUDY, sys.argv[1] if len(sys.argv) > 1 else "quick")
    print("report:", al.write_report(findings, "weight_decay.html"))
