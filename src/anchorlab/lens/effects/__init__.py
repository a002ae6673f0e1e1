"""Apply many interventions, one at a time, and measure the effect of each on the answers."""
