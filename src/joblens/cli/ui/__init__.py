"""Terminal views of runs, sweeps and recipes, drawn in place or as lines."""
