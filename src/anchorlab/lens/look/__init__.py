"""Recording what a model computes, under interventions written as data."""
