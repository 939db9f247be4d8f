"""Tickets of queued jobs: claims, leases, returns."""
