"""Progress measures of grokking: which frequencies the embedding uses, and the loss with these alone and without them.

Source: Nanda et al., Progress measures for grokking via mechanistic interpretability (2023), Figures 3 and 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, line
from anchorlab.lens import emergence, excluded_loss, frequency_norms, key_frequencies, look, restricted_loss
from anchorlab.studies.kit import MEAN_AND_RANGE, seed_table, split_curves
from anchorlab.tasks.classics.modular_arithmetic import ModularArithmetic
from anchorlab.training import Ensemble, TrainedRun

SHARE = 0.9  # the part of the final embedding's squared norm, without its mean, that the key frequencies hold together


@dataclass(frozen=True)
class Progress:
    """The progress measures of every member at every checkpoint; the key frequencies are the final embedding's.

    Shapes
        keys: `[member frequency]`
        restricted, excluded: `[member step]`, on all pairs and on the training pairs, at the steps in `steps`
    """

    steps: tuple[int, ...]
    keys: Bool[Tensor, "member frequency"]
    restricted: Float[Tensor, "member step"]
    excluded: Float[Tensor, "member step"]


def progress(run: TrainedRun) -> Progress | None:
    """Measure a run of modular arithmetic; None if it was kept without weights or its operation has no cyclic order."""
    task = run.experiment.task
    assert isinstance(task, ModularArithmetic)
    pairs = task.cyclic_pairs()
    if pairs is None or not run.has_weights:
        return None
    square, inputs = pairs.shape[:2], pairs.flatten(0, 1)
    answers = task.oracle(inputs).answers.view(square)
    trained = (task.split_of(inputs) == 0).view(square)
    keys = key_frequencies(frequency_norms(run.ensemble().weights["embed.W_E"][:, pairs[:, 0, 0]]), SHARE)

    def measure(ensemble: Ensemble) -> dict[str, Float[Tensor, "member"]]:
        logits = look(ensemble, inputs, positions=[task.shape.length - 1])["output"].view(ensemble.size, *square, -1)
        return {
            "restricted": restricted_loss(logits, answers, keys),
            "excluded": excluded_loss(logits, answers, keys, trained),
        }

    found = emergence(run, measure)
    return Progress(found.steps, keys, found.values["restricted"], found.values["excluded"])


def losses(run: TrainedRun, found: Progress | None) -> LineFigure | None:
    """Draw a run's training and test loss, and its restricted and excluded loss at every checkpoint."""
    if found is None:
        return None
    caption = (
        f"{MEAN_AND_RANGE} With weight decay. The restricted loss is on all pairs, with the logits' constant and key "
        "frequencies alone; the excluded loss on the training pairs, without the key frequencies. Both are measured at "
        "checkpoints; a run that keeps only its last one has one point of each. Dashed: all answers equally likely."
    )
    names = {"train": "training pairs", "test": "unseen pairs"}
    drawn = split_curves(
        "Loss with and without the key frequencies", run, names, "loss", caption=caption, y_label="loss"
    )
    times = [step / run.experiment.steps_per_unit for step in found.steps]
    more = (line("restricted loss", times, found.restricted), line("excluded loss", times, found.excluded))
    guess = Reference("guess", log(run.experiment.task.shape.output_size))
    return replace(drawn, lines=(*drawn.lines, *more), log_x=True, log_y=True, references=(guess,))


def frequencies(seeds: Sequence[int], decayed: Progress | None, plain: Progress | None) -> Table | None:
    """List each seed's key frequencies, and its losses with these alone and without them, at the end of training."""
    if decayed is None or plain is None:
        return None
    return seed_table(
        "Key frequencies, seed by seed",
        f"At the end of training with weight decay. Of {decayed.keys.shape[1] - 1} frequencies, the key frequencies "
        f"are the fewest with {SHARE:.0%} of the embedding's squared norm. Restricted loss: on all pairs, with only "
        "these frequencies of the logits; excluded loss: on the training pairs, without them. Last column: the number "
        "of key frequencies without weight decay.",
        seeds,
        {
            "key frequencies": [", ".join(map(str, keys.nonzero().flatten().tolist())) for keys in decayed.keys],
            "restricted loss": decayed.restricted[:, -1],
            "excluded loss": decayed.excluded[:, -1],
            "how many without decay": plain.keys.sum(dim=1),
        },
    )
