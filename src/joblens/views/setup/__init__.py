"""Settings, doctor and tools as text."""
