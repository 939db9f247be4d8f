"""Celery as the broker of a queue."""
