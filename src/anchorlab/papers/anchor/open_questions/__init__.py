"""The study `anchor/open-questions`, whose claims are in `open_questions.py`."""
