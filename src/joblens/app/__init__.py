"""Use cases and wiring; the only room that picks drivers."""
