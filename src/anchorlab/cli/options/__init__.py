"""Options and arguments of commands: shared declarations, fields at any depth, completion."""
