"""Configuration files and environment, parsed into settings."""
