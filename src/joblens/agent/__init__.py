"""Beside the job: start it, sample it, end it, ship what was measured."""
