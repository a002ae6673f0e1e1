"""The study `retrieval/language-models`, whose claims are in `language_models.py`."""
