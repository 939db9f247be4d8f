"""A recipe, its plan, events and snapshots."""
