"""Secrets: detection and redaction before anything is stored.

Environment variables are recorded by an allow-list, command lines and parameters are redacted by name and
pattern. A value that is secret by its name is hidden wherever else it occurs, also in the output of a job."""
