"""Three learners on the identity anchor function: how much data each needs before it generalises.

Source: anchor functions, section 4.1, Figure 4; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, ModelSpec
from anchorlab.studies.anchor import identity
from anchorlab.studies.anchor.settings import paper_recipe, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

NAMES = {"decoder": "transformer", "lstm": "LSTM", "fnn": "FNN"}
"""What each kind of model is called in the paper."""

ENOUGH = 600
GENERALISED = 0.9
"""A learner generalises at the smallest train size with at least this mean test accuracy."""

_FITTED = 0.99
_QUICK_SIZES = (200, 300, 400, 500, 600, 1000, 2000)
_START = (300, 400, 500, 600)
_SOURCE = "anchor functions, section 4.1 and Fig 4"
_ALONE = "measured in the profile `paper-start` alone"

CLAIMS = (
    Claim(
        "anchor/learners/transformer-enough",
        f"The transformer generalises with {ENOUGH} training sequences",
        _SOURCE,
        "about 1",
        f"its test accuracy at {ENOUGH} training sequences, mean over seeds",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/learners/lstm-enough",
        "The LSTM generalises with the largest training sets",
        _SOURCE,
        "similar to the transformer's, at about 2200",
        "its test accuracy at the largest train size, mean over seeds",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/learners/lstm-needs-more",
        "The LSTM needs more data than the transformer",
        _SOURCE,
        "3.7 times as much (about 2200 against 600)",
        f"smallest train size with a mean test accuracy of {GENERALISED:g}, LSTM over transformer",
        (1.5, None),
    ),
    Claim(
        "anchor/learners/fnn-never",
        "The fully connected network generalises at no size",
        _SOURCE,
        "fails",
        "its highest test accuracy over train sizes, each a mean over seeds; judged only where it fits its training "
        "sequences",
        (None, 0.1),
    ),
    Claim(
        "anchor/learners/fits",
        "All three fit their training sequences",
        "anchor functions, section 4.1",
        "implied: what they fail at is generalising",
        "lowest training accuracy over learners and sizes, each a mean over seeds",
        (_FITTED, None),
    ),
    Claim(
        "anchor/learners/start-enough",
        f"At full size, {ENOUGH} sequences are enough already after a tenth of the training",
        f"{_SOURCE} (4000 epochs)",
        "about 1",
        f"the transformer's test accuracy at {ENOUGH} training sequences after 400 epochs, mean over seeds; {_ALONE}",
        (0.9, 1.0),
    ),
    Claim(
        "anchor/learners/start-rises",
        "At full size, the test accuracy rises with the train size",
        "anchor functions, Fig 4 (4000 epochs)",
        "rises",
        "smallest difference of the mean test accuracies of neighbouring train sizes, larger minus smaller, after 400 "
        f"epochs; judged only where every training set is fitted; {_ALONE}",
        (0.0, None),
    ),
    Claim(
        "anchor/learners/start-fits",
        "At full size, every training set is fitted by then",
        "anchor functions, section 4.1",
        "1",
        f"lowest training accuracy over sizes and seeds after 400 epochs; {_ALONE}",
        (_FITTED, None),
    ),
)


def quick_experiments(
    sizes: Sequence[int] = _QUICK_SIZES, steps: int = 600, lstm_seeds: int = 5, fnn_seeds: int = 3
) -> list[Experiment]:
    """A narrow LSTM and a narrow fully connected network in the recipe of the identity study's transformer.

    The transformer is not among them: its cells are those of that study's `quick_experiments`.
    """
    models: tuple[tuple[ModelSpec, int], ...] = (
        (LSTMSpec(layers=2, width=64), lstm_seeds),
        (FNNSpec(width=64, hidden=256), fnn_seeds),
    )
    return [
        Experiment(
            task("anchor/identity"),
            model,
            quick_recipe(size, steps),
            Members(seeds=tuple(range(seeds))),
            f"identity, {NAMES[model.kind]}, {size} sequences",
        )
        for model, seeds in models
        for size in sizes
    ]


def _paper_experiments() -> list[Experiment]:
    models: tuple[ModelSpec, ...] = (DecoderSpec(), LSTMSpec(), FNNSpec())
    return [
        Experiment(
            task("anchor/identity"),
            model,
            paper_recipe(size),
            Members(seeds=tuple(range(10))),
            f"identity, {NAMES[model.kind]}, {size} sequences",
        )
        for model in models
        for size in identity.PAPER_SIZES
    ]


def _start_experiments() -> list[Experiment]:
    return [
        Experiment(
            task("anchor/identity"),
            DecoderSpec(),
            paper_recipe(size, epochs=400, every=50),
            Members(seeds=(0, 1)),
            f"identity, transformer, {size} sequences, 400 epochs",
        )
        for size in _START
    ]


@dataclass(frozen=True)
class Curve:
    """One learner at the end of training: `test` and `train` accuracies `[size member]`, sizes rising."""

    sizes: tuple[int, ...]
    test: Tensor
    train: Tensor

    def needed(self) -> int | None:
        """The smallest train size at which it generalises; None where it never does."""
        enough = self.test.mean(dim=1) >= GENERALISED
        return next((size for size, there in zip(self.sizes, enough.tolist(), strict=True) if there), None)

    def at(self, size: int) -> Tensor | None:
        """Test accuracies `[member]` at one size, None where it was not trained on that many."""
        return self.test[self.sizes.index(size)] if size in self.sizes else None


def curves(runs: Sequence[TrainedRun]) -> dict[str, Curve]:
    """The curve of each kind of model among the runs, transformer first."""
    found = {}
    for kind in NAMES:
        own = sorted((run for run in runs if run.experiment.model.kind == kind), key=_size)
        if own:
            test, train = (torch.stack([at_end(run, s, "accuracy") for run in own]) for s in ("test", "train"))
            found[kind] = Curve(tuple(map(_size, own)), test, train)
    return found


def compare(by_kind: Mapping[str, Curve]) -> dict[str, Tensor | None]:
    """What the claims on whole trainings are judged by: all three learners at the end."""
    transformer, lstm, fnn = (by_kind[kind] for kind in NAMES)
    sizes = transformer.needed(), lstm.needed()
    ratio = None if sizes[0] is None or sizes[1] is None else torch.tensor([sizes[1] / sizes[0]])
    means = {kind: curve.test.mean(dim=1) for kind, curve in by_kind.items()}
    fitted = {kind: curve.train.mean(dim=1).min() for kind, curve in by_kind.items()}
    return {
        "transformer-enough": transformer.at(ENOUGH),
        "lstm-enough": lstm.test[-1],
        "lstm-needs-more": ratio,
        "fnn-never": fnn.test[means["fnn"].argmax()] if fitted["fnn"] >= _FITTED else None,
        "fits": torch.stack(list(fitted.values())).min().reshape(1),
    }


def begin(transformer: Curve) -> dict[str, Tensor | None]:
    """What the claims on the first epochs are judged by: the transformer alone."""
    means, fitted = transformer.test.mean(dim=1), transformer.train.min()
    rises = torch.stack([larger - smaller for smaller, larger in pairwise(means)]).min()
    return {
        "start-enough": transformer.at(ENOUGH),
        "start-rises": rises.reshape(1) if fitted >= _FITTED else None,
        "start-fits": fitted.reshape(1),
    }


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The curves of Figure 4 where all three learners were trained; the transformer along training where it alone."""
    by_kind = curves(runs)
    all_three = len(by_kind) == len(NAMES)
    measured: dict[str, Tensor | None] = dict.fromkeys(claim.id.rpartition("/")[2] for claim in CLAIMS)
    measured |= compare(by_kind) if all_three else begin(by_kind["decoder"])
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary=f"Sequences of nine tokens hold the anchor 3 once, and the answer is the token after it. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(_size_figure(by_kind),) if all_three else (_epoch_figure(runs),),
        tables=(_need_table(by_kind), _size_table(by_kind)) if all_three else (_epoch_table(runs),),
    )


def _size(run: TrainedRun) -> int:
    return int(run.experiment.recipe.data.size)  # type: ignore[union-attr]


def _size_figure(by_kind: Mapping[str, Curve]) -> LineFigure:
    return LineFigure(
        title="Test accuracy against train size (Fig 4)",
        caption="At the end of training. Mean over seeds; the band reaches from the lowest to the highest. Test "
        "sequences hold a key at a position where training never shows it (modular residue).",
        x_label="training sequences",
        y_label="test accuracy",
        lines=tuple(line(NAMES[kind], curve.sizes, curve.test.T) for kind, curve in by_kind.items()),
        y_range=(0.0, 1.02),
        references=(Reference("the paper's transformer: about 1 by 600", float(ENOUGH), "x"),),
    )


def _need_table(by_kind: Mapping[str, Curve]) -> Table:
    return Table(
        title="Data needed",
        caption=f"Smallest train size with a mean test accuracy of {GENERALISED:g}; a dash where no size reaches it.",
        columns=("learner", "seeds", "training sequences needed", "highest mean test accuracy", "lowest train mean"),
        rows=tuple(
            (
                NAMES[kind],
                curve.test.shape[1],
                curve.needed(),
                float(curve.test.mean(dim=1).max()),
                float(curve.train.mean(dim=1).min()),
            )
            for kind, curve in by_kind.items()
        ),
    )


def _size_table(by_kind: Mapping[str, Curve]) -> Table:
    return Table(
        title="Accuracy by learner and train size",
        caption="Over seeds, at the end of training; train accuracy on the first 500 training sequences.",
        columns=("learner", "training sequences", "test mean", "test lowest", "test highest", "train mean"),
        rows=tuple(
            (NAMES[kind], size, float(test.mean()), float(test.min()), float(test.max()), float(train.mean()))
            for kind, curve in by_kind.items()
            for size, test, train in zip(curve.sizes, curve.test, curve.train, strict=True)
        ),
    )


def _along_epochs(run: TrainedRun) -> tuple[list[float], Tensor]:
    steps, values = along(run, "test", "accuracy")
    return [step / run.experiment.steps_per_unit for step in steps], values


def _epoch_figure(runs: Sequence[TrainedRun]) -> LineFigure:
    return LineFigure(
        title="Test accuracy in the first epochs, by train size",
        caption="The transformer at full size. Mean over seeds; the band reaches from the lowest to the highest.",
        x_label=runs[0].experiment.recipe.unit,
        y_label="test accuracy",
        lines=tuple(line(f"{_size(run)} sequences", *_along_epochs(run)) for run in runs),
        y_range=(0.0, 1.02),
    )


def _epoch_table(runs: Sequence[TrainedRun]) -> Table:
    sizes, measured = [_size(run) for run in runs], [_along_epochs(run) for run in runs]
    rows = zip(measured[0][0], *(values.mean(dim=0).tolist() for _, values in measured), strict=True)
    return Table(
        title="Test accuracy by epoch and train size",
        caption="The transformer at full size, mean over seeds.",
        columns=("epoch", *(f"{size} sequences" for size in sizes)),
        rows=tuple((int(epoch), *values) for epoch, *values in rows),
    )


STUDY = Study(
    name="anchor/learners",
    title="Three learners on the identity anchor function: the data each needs",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            lambda: [*identity.quick_experiments(), *quick_experiments()],
            "Quick profile: a transformer of two layers of one head (0.1 M parameters), an LSTM of two layers and a "
            "fully connected network of four blocks of 256 neurons, all of width 64; 600 steps of batch 50 at every "
            "size with learning rate 6e-3 and weight decay 0.3; ten, five and three seeds. The transformer's runs are "
            "those of the identity study. The paper trains four layers of each at width 400 (5.65, 5.3 and 416 M "
            "parameters) for 4000 epochs at up to 2e-4.",
        ),
        "paper": Profile(
            _paper_experiments,
            "Paper profile: the setting of appendix A and the reference code, the same recipe for all three. The 22 "
            "train sizes are those of the results that the paper's code was published with: 200 to 800 by 50, and 1000 "
            "to 2600 by 200. The paper does not give AdamW's weight decay; PyTorch's 0.01 is used.",
        ),
        "paper-start": Profile(
            _start_experiments,
            "Paper-start profile: the paper's setting to the digit for the transformer alone, on 300, 400, 500 and 600 "
            "sequences with two seeds, of which the first 400 of 4000 epochs are trained: the learning rate's rise to "
            "2e-4. PyTorch's weight decay of 0.01; the paper gives none.",
        ),
        "smoke": Profile(
            lambda: [
                *identity.quick_experiments(sizes=(200, 600), steps=8, seeds=2),
                *quick_experiments(sizes=(200, 600), steps=8, lstm_seeds=1, fnn_seeds=1),
            ],
            "Smoke profile: it only exercises the code.",
        ),
    },
    analyse=analyse,
)
