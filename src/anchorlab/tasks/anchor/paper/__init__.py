"""The anchor functions of the paper, one factory a file."""
