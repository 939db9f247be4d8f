"""Accounting of one job: meter, samples, limits that joblens enforces itself, outcome.

Totals are exact: they come from the groups and from `wait4`. Readings of single processes have a budget
(1/2000 of a core for a job, 8/2000 for all): with many processes, open files and I/O calls are sampled less
often, and are `None` in between."""
