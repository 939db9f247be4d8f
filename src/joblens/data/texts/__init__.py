"""Text columns as bytes: what operators on text are made of."""
