"""Measurements beside the control groups, one module each: GPU, network, energy, threads, memory."""
