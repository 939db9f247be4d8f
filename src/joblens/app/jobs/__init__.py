"""One command from request to record: run, submit, attach, history, logs, retention."""
