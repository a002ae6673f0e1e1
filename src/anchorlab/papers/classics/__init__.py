"""Studies of the field's classic tasks."""
