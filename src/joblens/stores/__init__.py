"""What remembers: the SQLite store, sample blocks, the journal and the plain-file sinks."""
