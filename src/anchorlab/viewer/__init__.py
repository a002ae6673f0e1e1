"""What a page shows of a model: its data and the scripts that draw it."""
