"""Texts of commands: parameters, references, quoting, patterns.

Commands without shell syntax run without a shell: one process less, and their own exit codes and signals."""
