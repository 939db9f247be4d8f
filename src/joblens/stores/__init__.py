"""Stores: SQLite and PostgreSQL, sample blocks, the journal, and sinks that write plain files."""
