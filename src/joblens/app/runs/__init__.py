"""Runs of workflows: create, find, inspect, reset, cancel, repeat."""
