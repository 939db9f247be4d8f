"""Slurm and Ray as engines of runs; pilot workers that a cluster starts.

Slurm: one `sbatch` for each job, an array for the jobs of a sweep, or allocations that many jobs share. Its
own numbers are read from `sacct` and shown beside ours, never instead. Ray: a process of its own is Ray's
client, because Ray ends a program whose node is lost; it outlives the driver. On each node one pilot worker
runs what Ray's tasks bring."""
