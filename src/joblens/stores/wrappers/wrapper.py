"""Base of stores around another store."""

from typing import Any

from joblens.ports.store import Store

# Typed as Any: `__getattr__` provides what the ports ask for, which a type checker cannot see.
_Forwarding: Any = object


class StoreWrapper(_Forwarding):  # type: ignore[misc]
    """Implements ports.store.QueueStore: what a subclass does not define is asked of `_inner()`."""

    def _inner(self) -> Store:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner(), name)
