"""Attachments: measuring running processes, control groups and containers.

There is no launcher: a pidfd holds the process, counters are differences from the moment of attaching, and
the record names neither groups nor processes, so that cleanup after a killed joblens never kills them."""
