"""Prometheus metrics of jobs as text, also under names of other exporters."""
