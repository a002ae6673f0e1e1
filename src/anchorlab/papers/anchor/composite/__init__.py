"""The study `anchor/composite`, whose claims are in `composite.py`."""
