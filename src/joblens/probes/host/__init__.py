"""The machine: load, memory, energy, hardware."""
