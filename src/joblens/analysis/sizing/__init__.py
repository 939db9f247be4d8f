"""Resource requests from measurements: right-sizing, utilization, advice."""
