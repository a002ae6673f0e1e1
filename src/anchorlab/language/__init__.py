"""Pretrained language models behind the same sites, and the texts on which they are measured."""
