"""Environment and files of a job: programs, packages, code, inputs and outputs."""
