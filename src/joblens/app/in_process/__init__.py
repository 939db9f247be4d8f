"""`JobMonitor`, `ResourceProfiler`, `@measured`: monitoring from inside a Python program."""
