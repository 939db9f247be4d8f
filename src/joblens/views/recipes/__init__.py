"""Text about recipes and their operators."""
