"""The table of detectors: a frame that prints all of its columns within 100 characters."""

import polars


class DetectorTable(polars.DataFrame):
    """A polars frame that prints every column, with three digits; polars itself leaves out the middle ones."""

    def __str__(self) -> str:  # polars' own `__repr__` calls it
        with polars.Config(tbl_cols=-1, float_precision=3):
            return super().__str__()
