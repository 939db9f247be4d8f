"""Tables, numbers, colours and small charts in text."""
