"""YAML, JSON, TOML and KDL into plain values with positions."""
