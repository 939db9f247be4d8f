"""How what all databases have in common asks its questions: by the name of a query and its parameters. Each
has its own text for the names."""

from collections.abc import Callable
from typing import Any

# A list as parameter is for a query that takes any number of values at once.
Ask = Callable[..., list[tuple[Any, ...]]]
