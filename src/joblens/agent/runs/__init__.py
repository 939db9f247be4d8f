"""The driver of a run: feeds events to the schedule and carries out its commands."""
