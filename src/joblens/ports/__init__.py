"""Protocols of stores, probes, clusters, brokers and clocks. No code."""
