"""Landscapes: the loss of a model with every subset of its units, and all circuits that follow from it."""
