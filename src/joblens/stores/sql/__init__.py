"""Queries and rows that every SQL store shares."""
