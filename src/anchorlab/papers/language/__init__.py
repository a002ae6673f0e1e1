"""Studies of pretrained language models: what the papers find in small models, measured in real ones."""
