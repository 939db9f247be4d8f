"""Use cases and wiring; the only layer that picks drivers."""
