"""Diagnosis of this machine, its store, queue and clusters."""
