"""Programs, packages and repositories that a job uses."""
