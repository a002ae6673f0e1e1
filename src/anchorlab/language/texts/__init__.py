"""Data files for the studies of language models: word lists, facts, sentences and a page of English."""
