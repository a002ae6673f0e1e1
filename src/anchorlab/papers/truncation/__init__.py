"""Studies of the truncated-weights paper."""
