"""Driving runs: checks, creation, the driver in the foreground or background, the end.

Everything that cannot work (jobs that never fit, missing inputs, a cluster that does not answer) is
refused before anything is written. Workflow and run are stored with the text of the file and of every
table it names: nothing later depends on files that may change. One command on a cluster is a run of one
job, whose record and ticket are written before it is driven.
"""
