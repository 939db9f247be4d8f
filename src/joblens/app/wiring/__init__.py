"""Wiring: store, sinks, clock, directories and settings of a process; opening and closing them."""
