"""A hand-written transformer that follows retrieval chains in the least number of layers."""

from anchorlab.models.transformer import Transformer
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory.compiled import assemble, chains

_SHARP = 60.0  # score difference that makes attention practically exact: exp(-60) is negligible


def retrieval_circuit(task: TokenRetrieval) -> Transformer:
    """Return a transformer that answers every query of a task, with one head in each of `least_depth` causal layers.

    It is the program `chains` in weights; the logit of the answer is 1, all others are 0.

    Errors: `SpecError` for a task with parents, and for a task that asks for several numbers of steps.
    """
    spec, weights = assemble(chains(task), sharpness=_SHARP, gap=1.0)
    module = spec.build(task.shape)
    module.load_state_dict(weights)
    return module
