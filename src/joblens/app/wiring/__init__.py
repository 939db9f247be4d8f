"""Wiring: store, sinks, clock, folders and settings of a process; opening and closing them."""
