"""One module per command: parse, call app, show a view."""
