"""Attention avoids the noise: the gradient of the key-query matrix after one step."""

from anchorlab.papers.truncation.attention_gradient.attention_gradient import STUDY

__all__ = ["STUDY"]
