"""Configuration files and environment into settings."""
