"""Plans: a workflow's expanded jobs, their graph, and the selection to run. Pure."""
