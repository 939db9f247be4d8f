"""What the middle of joblens asks of the outside: small protocols, no code."""
