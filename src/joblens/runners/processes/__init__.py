"""Sockets, environment and descendants of joblens' own processes."""
