"""Jobs of a run that a cluster places: allocations, tickets, retries."""
