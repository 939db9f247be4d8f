"""Capabilities of this machine, tried as for a job."""
