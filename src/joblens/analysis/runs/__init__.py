"""Numbers of whole runs and workflows."""
