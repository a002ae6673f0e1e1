"""The study `anchor/mechanism`, whose claims are in `mechanism.py`."""
