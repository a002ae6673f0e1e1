"""Many interventions at once."""
