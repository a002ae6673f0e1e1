"""What a study is: a setting, claims with their measures, controls, and how it runs."""

from anchorlab.findings.kept import kept_findings
from anchorlab.studies import draws, readings
from anchorlab.studies.claim import Measure, Measured, Measurement, claim, claims, measures_in, over, precondition
from anchorlab.studies.control import with_controls
from anchorlab.studies.kit import along, at_end, curves_against, seed_table, training_curves
from anchorlab.studies.observation_context import ObservationContext, WorkDone
from anchorlab.studies.observed import Observed
from anchorlab.studies.profile import Profile
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.readings import Reading, reading
from anchorlab.studies.registry import STUDIES, is_pattern, study, study_names, study_title
from anchorlab.studies.running import experiments_to_run, findings_directory, run_study
from anchorlab.studies.seeds import SEARCHED, fresh
from anchorlab.studies.shared_seeds import mean_of_known, over_shared
from anchorlab.studies.study import Study, metrics_alone
from anchorlab.studies.training_sweep import sweep_study

__all__ = [
    "SEARCHED",
    "STUDIES",
    "Measure",
    "Measured",
    "Measurement",
    "ObservationContext",
    "Observed",
    "Profile",
    "Reading",
    "Study",
    "WorkDone",
    "along",
    "at_end",
    "claim",
    "claims",
    "curves_against",
    "draws",
    "experiments_to_run",
    "findings_directory",
    "fresh",
    "is_pattern",
    "kept_findings",
    "mean_of_known",
    "measures_in",
    "metrics_alone",
    "over",
    "over_shared",
    "precondition",
    "quick_model",
    "quick_recipe",
    "reading",
    "readings",
    "run_study",
    "seed_table",
    "study",
    "study_names",
    "study_title",
    "sweep_study",
    "training_curves",
    "with_controls",
]
