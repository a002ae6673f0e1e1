"""Retrieval: following a chain through pairs."""
