"""Secrets: which texts are secret, and how they are taken out."""
