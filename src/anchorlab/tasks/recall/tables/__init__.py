"""Bigram counts of public-domain text; `rebuild` makes a table from any text file."""
