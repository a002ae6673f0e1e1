"""The study `language/noise`, whose claims are in `noise.py`."""
