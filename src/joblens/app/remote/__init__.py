"""Clients of a server for Python programs, blocking and asynchronous."""
