"""Studies of the anchor-function paper."""
