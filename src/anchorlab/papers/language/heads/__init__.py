"""The study `language/heads`, whose claims are in `heads.py`."""
