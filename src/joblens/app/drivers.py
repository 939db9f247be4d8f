"""The one place that picks drivers: which store, which sinks, which clock."""

import os
import time
from collections.abc import Callable

from joblens.app.places import default_journal_dir, default_store_path
from joblens.model.errors import InputError
from joblens.model.settings import Settings
from joblens.ports.sink import Sink
from joblens.ports.store import Store

Warn = Callable[[str], None]


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ns(self) -> int:
        return time.monotonic_ns()


def store_path(settings: Settings) -> str:
    url = settings.store.url
    if url is None:
        return default_store_path()
    path = url
    if "://" in url:
        scheme, _, path = url.partition("://")
        if scheme not in ("sqlite", "file"):
            raise InputError(
                f"store '{url}': '{scheme}' is not a store joblens can open",
                hint="give the path of a SQLite file, or sqlite:///path",
            )
    if os.path.isdir(path):
        raise InputError(
            f"store '{url}' is a directory", hint=f"name a file in it: {os.path.join(path, 'joblens.db')}"
        )
    _check_folder(url, os.path.dirname(os.path.abspath(path)))
    return path


def _check_folder(url: str, folder: str) -> None:
    """It may still have to be made, but not where something else is."""
    while not os.path.isdir(folder):
        if os.path.lexists(folder) and not os.path.isdir(folder):  # else somebody has made it just now
            raise InputError(
                f"store '{url}': {folder} is not a directory", hint="give the path of a file in a directory"
            )
        folder = os.path.dirname(folder)


def is_own_store(settings: Settings) -> bool:
    """Written by this user, or not there yet."""
    try:
        return os.stat(store_path(settings)).st_uid == os.geteuid()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def may_write_store(settings: Settings) -> bool:
    """A file that may be written is of no use in a folder that may not: its log goes beside it."""
    path = store_path(settings)
    folder = os.path.dirname(os.path.abspath(path))
    return os.access(folder, os.W_OK) and (os.access(path, os.W_OK) or not os.path.exists(path))


def warn_in_python(message: str) -> None:
    """For programs that use joblens as a library; commands say it in a line of their own."""
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=3)


def open_store_directly(settings: Settings, warn: Warn) -> Store:
    """Without a journal: what cannot be written raises StoreError."""
    from joblens.stores.sqlite import SqliteStore

    level = settings.job_metrics.compression_level
    return SqliteStore(store_path(settings), compression_level=level, warn=warn)


def open_store(settings: Settings, warn: Warn = warn_in_python, *, must_open: bool = False) -> Store:
    """For writing what jobs did: outlives a store that cannot be written, by journalling."""
    from joblens.stores.journal import JournaledStore
    from joblens.stores.sqlite import SqliteStore

    path = store_path(settings)
    level = settings.job_metrics.compression_level
    return JournaledStore(
        lambda: SqliteStore(path, compression_level=level, warn=warn),
        settings.store.journal_dir or default_journal_dir(),
        warn,
        path,
        must_open=must_open,
    )


def open_store_to_read(settings: Settings, warn: Warn) -> Store:
    """A store that somebody named and that is not there was mistyped: it is not made. What is waiting in
    a journal to be brought in does make it."""
    path = store_path(settings)
    if settings.store.url is not None and not os.path.exists(path):
        from joblens.stores.journal import has_left_behind

        if not has_left_behind(path, settings.store.journal_dir or default_journal_dir()):
            raise InputError(
                f"there is no store at {path}", hint="run a job first, or name another with --store"
            )
    if os.path.exists(path) and not may_write_store(settings):
        from joblens.stores.sqlite import SqliteStore

        return SqliteStore(path, read_only=True, warn=warn)
    return open_store(settings, warn, must_open=True)


def history_file(settings: Settings) -> str:
    beside = os.path.join(os.path.dirname(os.path.abspath(store_path(settings))), "jobs_history.jsonl")
    return settings.sinks.history.path or beside


def open_sinks(settings: Settings, warn: Warn) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.sinks.history.enabled:
        from joblens.stores.history_jsonl import HistoryJsonl

        wanted = settings.sinks.history
        sinks.append(HistoryJsonl(history_file(settings), wanted.max_size, wanted.backup_count, warn))
    folder = settings.job_metrics.storage_dir
    if folder:
        from joblens.stores.sample_jsonl_gz import SampleJsonlGz

        metrics = settings.job_metrics
        sinks.append(SampleJsonlGz(folder, metrics.max_file_size, metrics.compression_level, warn))
    return sinks
