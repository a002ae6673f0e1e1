"""Stores of results: content-addressed cells and the directories of their runs."""

from anchorlab.runs.cell import Cell, canonical_json
from anchorlab.runs.chunk_directory import ChunkDirectory, ChunkState
from anchorlab.runs.differences import differences, differing, side_by_side, words
from anchorlab.runs.entry import Entry, entry_of, flat
from anchorlab.runs.index import Index
from anchorlab.runs.metrics import metrics_frame, metrics_schema
from anchorlab.runs.query import Condition, Fields, chosen, ordered, short_names, text_of
from anchorlab.runs.references import KINDS, Use, record_use, removable, studies_by_run, uses
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import RunDirectory
from anchorlab.runs.store import Store
