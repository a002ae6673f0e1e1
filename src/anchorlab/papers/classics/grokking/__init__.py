"""The study `classics/grokking`, whose claims are in `grokking.py`."""
