"""Commands that wait for jobs wait for the store too, when it is away for a while."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from joblens.ports.store import Store

if TYPE_CHECKING:
    from joblens.stores.wrappers.retrying import RetryingStore


def patient_store(
    store: Store, tell: Callable[[str], None], timeout_s: float | None = None
) -> "RetryingStore":
    """`tell` hears once of each outage. Beyond the time its error is raised."""
    from joblens.stores.wrappers.retrying import RetryingStore

    inner = store.inner if isinstance(store, RetryingStore) else store
    return RetryingStore(inner, tell, until=None if timeout_s is None else time.monotonic() + timeout_s)
