"""Pure: from a workflow as written to the jobs it stands for, their graph, and which of them to run."""
