"""Score the units of a model, and the edges between them, by their effect on a metric."""
