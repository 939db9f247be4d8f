"""JobMonitor, ResourceProfiler and @measured: monitoring from inside a Python program."""
