"""A job's life, decided purely: (state, event) -> (state, commands)."""
