"""Stores around a store: journal, fencing, retries."""
