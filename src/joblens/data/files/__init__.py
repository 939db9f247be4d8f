"""Input datasets and exported results.

Datasets are split into partitions without reading them. Rows from JSON carry their line, so that fields no
operator changes are written back byte for byte.
"""
