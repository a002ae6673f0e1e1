"""Studies of models whose circuits are known: by construction, or from the loss of every subset of units."""
