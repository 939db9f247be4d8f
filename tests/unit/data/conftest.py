"""Recipes need the data extra: without it nothing here is collected."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pyarrow") else ["test_*.py"]
