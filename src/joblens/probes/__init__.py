"""Readers of kernel files. A probe only reads; it never changes the machine."""
