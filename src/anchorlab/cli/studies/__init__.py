"""Commands on studies and sweeps, their claims and their pages."""
