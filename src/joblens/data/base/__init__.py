"""Folder, lock, plan and tasks of a recipe's job."""
