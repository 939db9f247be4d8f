"""YAML, JSON, JSON5, TOML and KDL readers: plain values with positions.

The same content gives the same values in every format. Positions are computed on demand: a file of 100,000
jobs has millions of them and usually no mistake. YAML is read event by event with PyYAML's parser, by the
rules of YAML 1.2.
"""
