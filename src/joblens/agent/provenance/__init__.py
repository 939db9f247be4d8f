"""Environment and files of a job: programs, packages, code, machine, inputs and outputs.

It is collected while the job runs, never before, and stored once for all jobs that share it, under its
own digest. Commands of one kind share one lookup as long as the files that they start do not change.
"""
