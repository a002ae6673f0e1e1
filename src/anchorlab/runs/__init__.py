"""Stores of results: cells, addressed by their content, and the directories of their runs."""

from anchorlab.runs.cell import Cell, canonical_json
from anchorlab.runs.chunk_directory import ChunkDirectory, ChunkState
from anchorlab.runs.metrics import metrics_frame, metrics_schema
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import RunDirectory
from anchorlab.runs.store import Store
