"""Pretrained models as studies open and ask them."""
