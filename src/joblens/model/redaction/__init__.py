"""Secrets: detection and redaction before anything is stored.

Environment variables are recorded by an allow-list, command lines and parameters are redacted by name and
pattern. A value that is secret by its name is hidden wherever else it occurs, also in the output of a job.

Two exceptions, because only the store reaches another machine: tickets have the real command and environment,
and user data and added jobs keep their secrets where a driver on another host needs them."""
