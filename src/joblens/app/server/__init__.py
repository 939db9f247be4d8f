"""Use cases of the server: access, jobs, runs, samples, logs and changes, as values."""
