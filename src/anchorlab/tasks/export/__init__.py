"""Tasks as data for other tools."""
