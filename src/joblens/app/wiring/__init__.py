"""Wiring: which store, sinks, clock, folders and settings a process uses; opening and closing all of it."""
