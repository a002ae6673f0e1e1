"""The study `truncation/rank-one-noise`, whose claims are in `rank_one_noise.py`."""
