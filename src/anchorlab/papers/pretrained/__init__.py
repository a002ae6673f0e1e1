"""Open and ask the pretrained models of studies."""
