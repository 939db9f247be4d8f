"""Tools for AI assistants over the Model Context Protocol."""
