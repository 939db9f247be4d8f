"""One file per command: parse, call app, show a view."""
