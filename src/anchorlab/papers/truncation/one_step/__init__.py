"""The study `truncation/one-step`, whose claims are in `one_step.py`."""
