"""Text for people, made of values: no reading, no printing, no clock."""
