"""The study `retrieval/emergence`, whose claims are in `emergence.py`."""
