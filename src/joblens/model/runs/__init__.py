"""A workflow, its plan and its runs."""
