"""Files on disk: private ones, atomic replacement, rotation."""
