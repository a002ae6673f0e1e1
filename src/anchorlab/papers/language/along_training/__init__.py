"""The study `language/along-training`, whose claims are in `along_training.py`."""
