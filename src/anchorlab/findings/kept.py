"""Read the findings that a store keeps."""

from anchorlab.errors import SpecError, StoreError
from anchorlab.findings.findings import Findings
from anchorlab.plain import MOST_BYTES_OF_RESULTS, read_data
from anchorlab.runs import Store
from anchorlab.runs.references import study_files

FINDINGS = "findings.json"
"""The file with the findings of a study under a profile."""


def kept_findings(store: Store) -> list[Findings]:
    """Return the findings of every study in the store, by study and profile.

    Errors: `StoreError` that names a damaged file.
    """
    found = []
    for path in study_files(store.root, FINDINGS):
        try:
            found.append(Findings.from_json(read_data(path, MOST_BYTES_OF_RESULTS)))
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; delete it") from None
        except SpecError as error:
            raise StoreError(f"{path}: damaged ({error}); run its study again") from None
    return found
