"""Studies of the paper on stacked attention heads."""
