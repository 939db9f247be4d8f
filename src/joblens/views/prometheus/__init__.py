"""Prometheus metrics of jobs as text, under joblens' own names and those of other exporters."""
