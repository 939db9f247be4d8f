"""Stores: SQLite and PostgreSQL, sample blocks, the journal, and plain-file sinks."""
