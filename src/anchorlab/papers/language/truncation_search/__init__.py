"""The study `language/truncation-search`, whose claims are in `truncation_search.py`."""
