"""How far a run has come."""
