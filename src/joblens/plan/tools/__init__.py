"""Commands and parameters of tools."""
