"""Accounting of one job: meter, samples, limits that joblens watches itself, outcome."""
