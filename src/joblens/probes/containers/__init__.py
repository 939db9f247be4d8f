"""Container engines over their sockets."""
