"""YAML, JSON, JSON5, TOML and KDL into plain values with positions.

The same content gives the same values in every format. A position is worked out when it is asked for: a
file of 100,000 jobs has millions of them and mostly no mistake. YAML is read event by event by the rules of
YAML 1.2, from PyYAML's parser."""
