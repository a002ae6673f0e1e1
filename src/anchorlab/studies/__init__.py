"""Studies: one module per figure or question - its grid of experiments, its analysis, its claims."""

from anchorlab.studies.registry import STUDIES, is_pattern, study, study_names
from anchorlab.studies.study import Profile, Study, findings_directory, kept_findings, run_study
from anchorlab.studies.training_sweep import sweep_study

__all__ = [
    "STUDIES",
    "Profile",
    "Study",
    "findings_directory",
    "is_pattern",
    "kept_findings",
    "run_study",
    "study",
    "study_names",
    "sweep_study",
]
