"""Export, import, plots, comparisons, right-sizing."""
