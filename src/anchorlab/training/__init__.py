"""Training: recipes, ensembles, and the loop that trains them."""

from anchorlab.training.checkpoint import ChunkKeeper, merge
from anchorlab.training.cost import check_memory, memory_per_member, work_per_step
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.training.experiment import Experiment
from anchorlab.training.members import Gamma, Members
from anchorlab.training.optimisers import undecayed_weights
from anchorlab.training.own_loss import Loss, register_loss
from anchorlab.training.recipe import (
    SGD,
    Adam,
    AdamW,
    Constant,
    Evaluation,
    FixedSample,
    Recipe,
    Stop,
    Stream,
    Times,
    WarmupCosine,
)
from anchorlab.training.saved_model import load_pretrained
from anchorlab.training.trained_run import TrainedRun, find_runs, open_run
from anchorlab.training.trainer import Progress, Trained, fit
