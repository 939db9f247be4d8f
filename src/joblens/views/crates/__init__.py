"""HTML page of an RO-Crate."""
