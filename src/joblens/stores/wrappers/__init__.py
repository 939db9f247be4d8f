"""Store wrappers: journal, fencing, retries.

The journal holds writes while the store cannot be opened or written. Writes are idempotent, so replaying a
journal needs no bookkeeping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joblens.ports.store import Store

# Typed as Any: `__getattr__` provides what the ports ask for, which a type checker cannot see.
_Forwarding: Any = object


class StoreWrapper(_Forwarding):  # type: ignore[misc]
    """Implements ports.store.QueueStore: forwards to `_inner()` what a subclass does not define."""

    def _inner(self) -> Store:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner(), name)
