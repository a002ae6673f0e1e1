"""Commands that train a task, here or by workers on a cluster."""
