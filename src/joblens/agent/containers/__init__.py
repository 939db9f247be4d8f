"""Jobs in containers, and containers that others started."""
