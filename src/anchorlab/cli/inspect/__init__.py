"""Commands that look inside the models of a run, or inside a pretrained one."""
