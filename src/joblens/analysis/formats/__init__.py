"""JSON formats of other systems for records and samples, written and read."""
