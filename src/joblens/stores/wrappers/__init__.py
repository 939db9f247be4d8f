"""Stores around a store: journal, fencing, retries.

The journal keeps writes while the store cannot be opened or written. No write changes anything when it is
applied twice, so a journal can be replayed without care."""
