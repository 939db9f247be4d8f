"""Slurm and Ray as engines of runs; pilot workers.

Slurm: one `sbatch` per job, an array for the jobs of a sweep, or allocations that many jobs share. Its own
numbers are read from `sacct` and shown next to ours, never instead. Ray: a separate process is Ray's
client, because Ray kills a program whose node is lost; it outlives the driver. On each node one pilot
worker runs the jobs of Ray's tasks.
"""
