"""Bigram tables of public-domain texts; `rebuild` makes one from any text file."""
