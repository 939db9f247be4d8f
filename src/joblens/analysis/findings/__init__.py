"""Findings: reasons of a job's end, causes of waiting, unused requests."""
