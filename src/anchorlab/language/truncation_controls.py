"""Three controls of a truncation: random changes of the same size, the other answers, and the loss on ordinary text.

Without these controls, a higher probability of the right word means little: any change of the matrix might have the
same effect, all words of the same kind might gain alike, or the model might be ruined for everything else.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.answers import Answers, Questions, combine
from anchorlab.language.encode import TokenisedTexts
from anchorlab.language.losses import text_losses
from anchorlab.language.next_words import edited_weights
from anchorlab.models.edits import Truncate
from anchorlab.models.precision import at_least_float32
from anchorlab.progress import Counted, counted
from anchorlab.rng import generator


@dataclass(frozen=True)
class TruncationControls:
    """Answers with a truncation and with its controls.

    Fields
        truncation: the truncation under test
        full: the answers of the full model, `[prompt]`
        cut: the answers with the truncation, `[prompt]`
        random: the answers with random changes of the same matrix that change its output by the same amount,
            `[draw prompt]`
        full_losses: -log p of each token of the text under the full model; NaN in padding
        cut_losses: -log p of each token of the text with the truncation
    """

    truncation: Truncate
    full: Answers
    cut: Answers
    random: Answers
    full_losses: Float[Tensor, "batch following"]
    cut_losses: Float[Tensor, "batch following"]

    @property
    def gain(self) -> float:
        """The increase of the right word's mean log-probability by the truncation."""
        return float((self.cut.right - self.full.right).nanmean())

    @property
    def random_gains(self) -> Float[Tensor, "draw"]:
        """The gains of the random changes."""
        return (self.random.right - self.full.right).nanmean(-1)

    @property
    def others_gain(self) -> float:
        """The increase of the mean log of the wrong candidates' summed probability by the truncation."""
        return float((self.cut.others - self.full.others).nanmean())

    @property
    def perplexities(self) -> tuple[float, float]:
        """The perplexity of the text without and with the truncation."""
        return float(self.full_losses.nanmean().exp()), float(self.cut_losses.nanmean().exp())


def control_truncation(
    questions: Questions,
    truncation: Truncate,
    text: Int[Tensor, "batch position"] | TokenisedTexts,
    draws: int = 50,
    seed: int = 0,
    progress: Counted = None,
) -> TruncationControls:
    """Compare a truncation with the full model and with `draws` equally large random changes of the same matrix.

    A random change has independent normal entries. It is scaled so that it changes the matrix's output on the tokens of
    the questions as much as the truncation does, in root mean square. Equal norms of the weights would not be a fair
    control: a truncation removes the smallest singular values, along which the matrix's input may be much longer than
    along a random direction.

    Args:
        questions: the prompts; use prompts on which the truncation was not chosen
        truncation: a truncation of one matrix
        text: ordinary text, as in `text_losses`
        draws: the number of random changes
        seed: the seed of the draws
        progress: as in `search_truncations`, counted in draws

    Errors: `SpecError` for a truncation that changes nothing, of a product or of a matrix outside the blocks, and
    without draws.
    """
    if draws < 1:
        raise SpecError("draws", f"{draws} random changes", "choose at least 1")
    model, cut = questions.model, edited_weights(questions.model, [truncation])
    if len(cut) != 1:
        raise SpecError("truncation", f"of {truncation.weight!r} changes {len(cut)} matrices", "cut one of them")
    name, changed = next(iter(cut.items()))
    whole = at_least_float32(model.get_parameter(name).detach())
    entering, random = at_least_float32(questions.entering(name)), generator(seed, "language", "random changes")
    size = float((entering @ (changed.to(whole) - whole)).norm())

    changes = []
    with counted("random changes", progress) as tell:
        for done in range(draws):
            tell(done, draws)
            noise = torch.from_numpy(random.standard_normal(tuple(whole.shape), dtype=np.float32)).to(whole)
            noise *= size / float((entering @ noise).norm())
            changes.append(questions.answers({name: (whole + noise).to(changed)}))
        tell(draws, draws)
    return TruncationControls(
        truncation,
        questions.answers(),
        questions.answers(cut),
        combine(changes),
        text_losses(model, text),
        text_losses(model, text, cut),
    )
