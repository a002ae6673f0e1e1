"""The commands `anchorlab runs ...` on the runs of a store."""
