"""Text columns as bytes: building blocks of text operators."""
