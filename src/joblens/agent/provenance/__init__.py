"""Environment and files of a job: programs, packages, code, machine, inputs and outputs.

It is collected beside the job, never before it, and stored once for all jobs that share it, under a digest
of itself. Commands of one kind share one lookup as long as the files that they start do not change."""
