"""Handle experiments whose task or model is registered by a user module."""

import sys

from anchorlab.errors import SpecError
from anchorlab.runs import Run
from anchorlab.runs.plugins import is_module_name, named_modules
from anchorlab.training.experiment import Experiment


def modules_of(experiment: Experiment) -> set[str]:
    """Return the user modules that register an experiment's task and model, without a script that is being run."""
    names = {type(experiment.task).__module__, type(experiment.model).__module__}
    return {name for name in names if is_module_name(name) and name.partition(".")[0] not in ("anchorlab", "__main__")}


def experiment_of(run: Run) -> Experiment:
    """Rebuild the experiment of a run.

    Errors: `SpecError` that names the field, and the modules of the store that must be imported first, if any.
    """
    try:
        return Experiment.from_json(run.spec, run.label)
    except SpecError as error:
        missing = [name for name in named_modules(run.path.parent) if name not in sys.modules]
        if not missing or error.field.partition(".")[0] not in ("task", "model", "start"):
            raise
        modules = f"module{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        remedy = f"this store's runs need the {modules}: add {' '.join(f'--import {name}' for name in missing)}"
        raise SpecError(error.field, error.problem.partition(";")[0], remedy) from None
