"""Commands on tasks and kinds of models: list, show, check, export."""
