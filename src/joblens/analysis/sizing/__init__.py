"""Resource requests from what was measured: right-sizing, utilization, advice."""
