"""Store wrappers: journal, fencing, retries.

The journal holds writes while the store cannot be opened or written. Writes are idempotent, so replaying a
journal needs no bookkeeping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joblens.ports.store import QueueStore, Store

    # `__getattr__` is its implementation, which a type checker cannot see: Any says that nothing is missing.
    class _Port(QueueStore, Any):  # type: ignore[misc]
        pass
else:
    _Port = object


class StoreWrapper(_Port):
    """Implements ports.store.QueueStore: forwards to `_inner()` what a subclass does not define."""

    def _inner(self) -> Store:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner(), name)
