"""Bigram tables of public-domain texts; `rebuild` makes a table from any text file."""
