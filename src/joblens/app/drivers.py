"""The one place that picks drivers: which store, which sinks, which clock."""

import time

from joblens.app.places import default_journal_dir, default_store_path
from joblens.model.errors import InputError
from joblens.model.settings import Settings
from joblens.ports.store import Store


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ns(self) -> int:
        return time.monotonic_ns()


def store_path(settings: Settings) -> str:
    url = settings.store.url
    if url is None:
        return default_store_path()
    if "://" in url:
        scheme, _, rest = url.partition("://")
        if scheme in ("sqlite", "file"):
            return rest
        raise InputError(
            f"store '{url}': '{scheme}' is not a store joblens can open",
            hint="give the path of a SQLite file, or sqlite:///path",
        )
    return url


def open_store(settings: Settings) -> Store:
    """For writing what jobs did: outlives a store that cannot be written, by journalling."""
    from joblens.stores.journal import JournaledStore
    from joblens.stores.sqlite import SqliteStore

    path = store_path(settings)
    level = settings.job_metrics.compression_level
    return JournaledStore(
        lambda: SqliteStore(path, compression_level=level),
        settings.store.journal_dir or default_journal_dir(),
    )
