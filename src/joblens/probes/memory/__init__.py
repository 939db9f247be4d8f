"""Memory in depth: PSS, NUMA nodes, huge pages."""
