"""The study `truncation/attention-gradient`, whose claims are in `attention_gradient.py`."""
