"""The study `anchor/reading-comprehension`, whose claims are in `reading_comprehension.py`."""
