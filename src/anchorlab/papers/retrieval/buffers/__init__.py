"""The study `retrieval/buffers`, whose claims are in `buffers.py`."""
