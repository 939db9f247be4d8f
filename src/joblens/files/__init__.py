"""Files on disk: private ones, atomic replacement, rotation; and the identity of processes."""
