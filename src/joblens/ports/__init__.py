"""Protocols of stores, probes, clusters, brokers and clocks, which the layers below `app` use. No code."""
