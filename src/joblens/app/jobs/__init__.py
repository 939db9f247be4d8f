"""One command from request to record: run, submit, attach, history, logs, retention.

Cancelling goes through the store, so it works for every owner on every machine."""
