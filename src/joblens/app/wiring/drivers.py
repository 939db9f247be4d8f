"""Drivers and paths: which store, sinks and clock are used, and the XDG directories of joblens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from joblens.model.errors import InputError
from joblens.model.settings import is_postgres, without_password

if TYPE_CHECKING:
    from joblens.model.settings import Settings
    from joblens.ports.store import Deliveries, Sink, Store
    from joblens.stores.postgres import PostgresStore
    from joblens.stores.sqlite import SqliteStore
    from joblens.stores.wrappers.journal import JournaledStore
    from joblens.stores.wrappers.retrying import RetryingStore


SYSTEM_CONFIG = "/etc/joblens/joblens.yml"
CONFIG_NAME = "joblens.yml"


def _base(env: Mapping[str, str], variable: str, *below_home: str) -> str:
    """Returns an XDG directory; the specification says to ignore relative paths in its variables."""
    path = env.get(variable, "")
    if path.startswith("/"):
        return path
    return os.path.join(home_dir(env), *below_home)


def home_dir(env: Mapping[str, str] = os.environ) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def user_config_path(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_CONFIG_HOME", ".config"), "joblens", CONFIG_NAME)


def default_store_path(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_DATA_HOME", ".local", "share"), "joblens", "joblens.db")


def state_dir(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_STATE_HOME", ".local", "state"), "joblens")


def default_journal_dir(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(state_dir(env), "journal")


def store_home(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """Returns the folder for files of a store: its file's own, or for a server one of this machine."""
    if _is_file(store_name):
        return os.path.dirname(os.path.abspath(store_name))
    return os.path.join(os.path.dirname(default_store_path(env)), "stores", _mark_of(store_name))


def logs_dir(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """Returns the folder for output of jobs, next to the store with their records."""
    return os.path.join(store_home(store_name, env), "logs")


def spool_dir(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """Returns the folder for work in progress of one store: payloads of queued jobs, outcomes of
    launchers, the supervisor's lock. On disk, not in the login session's directory, which is removed at
    logout."""
    return os.path.join(state_dir(env), "spool", _mark_of(store_name))


def _is_file(store_name: str) -> bool:
    return "://" not in store_name


def _mark_of(store_name: str) -> str:
    """Short enough for a file name, and different for every store."""
    import zlib

    whole = os.path.abspath(store_name) if _is_file(store_name) else store_name
    name = whole.encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(name):08x}{zlib.adler32(name):08x}"


Warn = Callable[[str], None]

READER_ANSWER_S = 60.0
AGENT_ANSWER_S = 15.0  # they have jobs to run, and a journal


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def store_name(settings: Settings) -> str:
    """Returns the path of its file, or its URL without the password: for messages and names."""
    url = settings.store.url
    if url is None:
        return default_store_path()
    if is_postgres(url):
        return without_password(url)
    path = url
    if "://" in url:
        scheme, _, path = url.partition("://")
        if scheme not in ("sqlite", "file"):
            raise InputError(
                f"store '{scheme}://…': '{scheme}' is not a store joblens can open",
                hint="give the path of a SQLite file, sqlite:///path, or postgresql://host/database",
            )
    if os.path.isdir(path):
        raise InputError(
            f"store '{url}' is a directory", hint=f"give a file in it: {os.path.join(path, 'joblens.db')}"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"store '{url}' is not a regular file", hint="give the path of a file")
    path = os.path.abspath(path)
    _check_folder(url, os.path.dirname(path))
    return path


def store_address(settings: Settings) -> str:
    """Returns the URL with the password, only for connecting."""
    url = settings.store.url
    return url if url is not None and is_postgres(url) else store_name(settings)


def is_file_store(settings: Settings) -> bool:
    return not is_postgres(settings.store.url or "")


def _check_folder(url: str, folder: str) -> None:
    """It may have to be created, but not over something else."""
    while not os.path.isdir(folder):
        # otherwise another process has just created it
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise InputError(
                f"store '{url}': {folder} is not a directory", hint="give the path of a file in a directory"
            )
        folder = os.path.dirname(folder)


def store_exists(settings: Settings) -> bool:
    """True for a server, and for a file that cannot be checked: opening it gives a better error."""
    if is_postgres(settings.store.url or ""):
        return True
    try:
        os.stat(store_name(settings))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def is_own_store(settings: Settings) -> bool:
    """Returns whether this user wrote it, or it does not exist yet. In a database all writers are trusted:
    they can run jobs too."""
    if is_postgres(settings.store.url or ""):
        return True
    try:
        return os.stat(store_name(settings)).st_uid == os.geteuid()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def may_write_store(settings: Settings) -> bool:
    """A writable file is useless in a folder that is not: its log is next to it."""
    if is_postgres(settings.store.url or ""):
        return True
    path = store_name(settings)
    return os.access(os.path.dirname(path), os.W_OK) and (
        os.access(path, os.W_OK) or not os.path.exists(path)
    )


def why_unwritable(folder: str) -> str:
    """Returns why nothing can be created in the folder, or in its nearest parent; '' if it can."""
    parent = folder
    while not os.path.isdir(parent) and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    return "" if os.access(parent, os.W_OK | os.X_OK) else f"{parent} cannot be written"


def warn_in_python(message: str) -> None:
    """For programs that use joblens as a library; commands print a line instead."""
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=3)


def open_store_directly(settings: Settings, warn: Warn) -> PostgresStore | SqliteStore:
    """Opens the store without a journal: failing writes raise StoreError."""
    return _opener(settings, warn)()


def open_deliveries(settings: Settings, warn: Warn, answer_s: float = READER_ANSWER_S) -> Deliveries:
    """Returns the store itself: a worker that cannot reach it gets no work."""
    return _opener(settings, warn, answer_s)()


def _opener(
    settings: Settings, warn: Warn, answer_s: float = READER_ANSWER_S
) -> Callable[[], SqliteStore | PostgresStore]:
    address, level = store_address(settings), settings.job_metrics.compression_level
    if is_postgres(address):
        from joblens.stores.postgres import PostgresStore

        return lambda: PostgresStore(address, compression_level=level, answer_s=answer_s, warn=warn)
    from joblens.stores.sqlite.job_store import SqliteJobStore

    return lambda: SqliteJobStore(address, compression_level=level, warn=warn)  # type: ignore[return-value]


def open_store(
    settings: Settings,
    warn: Warn = warn_in_python,
    *,
    must_open: bool = False,
    answer_s: float = AGENT_ANSWER_S,
) -> JournaledStore:
    """For recording jobs: survives an unavailable store by journalling."""
    from joblens.stores.wrappers.journal import JournaledStore

    return JournaledStore(
        _opener(settings, warn, answer_s),
        settings.store.journal_dir or default_journal_dir(),
        warn,
        store_name(settings),
        must_open=must_open,
    )


def open_store_to_read(settings: Settings, warn: Warn, answer_s: float = READER_ANSWER_S) -> Store:
    """A named store that does not exist was mistyped: it is not created, unless a journal has data for
    it."""
    name = store_name(settings)
    if settings.store.url is not None and not store_exists(settings):
        from joblens.stores.wrappers.journal import has_left_behind

        if not has_left_behind(name, settings.store.journal_dir or default_journal_dir()):
            raise InputError(
                f"there is no store at {name}", hint="run a job first, or choose another store with --store"
            )
    if store_exists(settings) and not may_write_store(settings):
        from joblens.stores.sqlite import SqliteStore

        return SqliteStore(name, read_only=True, warn=warn)
    return open_store(settings, warn, must_open=True, answer_s=answer_s)


class StoreConnection:
    """The connection of a process to its store, opened at first use."""

    def __init__(self, settings: Settings, warn: Warn, answer_s: float = READER_ANSWER_S) -> None:
        self._settings = settings
        self._warn = warn
        self._answer_s = answer_s
        self._store: Store | None = None
        self._read_only: Store | None = None  # opened before the store had to be written

    def to_read(self) -> Store:
        """Raises InputError for a named store that does not exist."""
        if self._store is None:
            self._store = open_store_to_read(self._settings, self._warn, self._answer_s)
        return self._store

    def if_exists(self) -> Store | None:
        """Returns None if there is no store, and creates none."""
        return self.to_read() if store_exists(self._settings) else None

    def to_write(self, *, must_open: bool = True) -> JournaledStore:
        """Creates the store if there is none. Raises StoreError for one that cannot be opened, unless its
        journal is enough."""
        if self.journaled is None:
            opened = open_store(self._settings, self._warn, must_open=must_open, answer_s=self._answer_s)
            self._read_only, self._store = self._store, opened
        assert self.journaled is not None
        return self.journaled

    @property
    def journaled(self) -> JournaledStore | None:
        """Returns the connection, if it is open and writable."""
        from joblens.stores.wrappers.journal import JournaledStore

        return self._store if isinstance(self._store, JournaledStore) else None

    def wait_for_store(self, notify: Warn, timeout_s: float | None) -> None:
        """From now on retries a store that does not answer, up to `timeout_s`, and reports it once."""
        self._store = retrying_store(self.to_read(), notify, timeout_s)

    def close(self) -> None:
        for store in (self._store, self._read_only):
            if store is not None:
                store.close()
        self._store = self._read_only = None


def logs_root(settings: Settings) -> str:
    """Returns the parent of the jobs' output folders."""
    return settings.output.dir or logs_dir(store_name(settings))


def history_file(settings: Settings) -> str:
    return settings.sinks.history.path or os.path.join(store_home(store_name(settings)), "jobs_history.jsonl")


def open_sinks(settings: Settings, warn: Warn) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.sinks.history.enabled:
        from joblens.stores.sinks.history_jsonl import HistoryJsonl

        limits = settings.sinks.history
        sinks.append(HistoryJsonl(history_file(settings), limits.max_size, limits.backup_count, warn))
    folder = settings.job_metrics.storage_dir
    if folder:
        from joblens.stores.sinks.sample_jsonl_gz import SampleJsonlGz

        metrics = settings.job_metrics
        sinks.append(SampleJsonlGz(folder, metrics.max_file_size, warn))
    return sinks + open_event_sinks(settings, warn)


def open_event_sinks(settings: Settings, warn: Warn) -> list[Sink]:
    """Sinks for programs that follow jobs. None of them is imported unless it is configured."""
    sinks: list[Sink] = []
    if settings.gpu.job_mapping_dir:
        from joblens.stores.sinks.gpu_job_map import GpuJobMap

        sinks.append(GpuJobMap(settings.gpu.job_mapping_dir, warn))
    if settings.lineage.file or settings.lineage.url:
        from joblens.stores.sinks.open_lineage import open_lineage_sink

        sinks.append(open_lineage_sink(settings.lineage, warn))
    if settings.otel.enabled:
        from joblens.stores.sinks.queued import QueuedSink

        def make() -> Sink:
            from joblens.stores.sinks.otel import OtelSink

            return OtelSink(settings.otel, queued.warn_once)

        queued = QueuedSink("OpenTelemetry", make, warn, settings.otel.flush)
        sinks.append(queued)
    return sinks


def store_for_jobs(settings: Settings, *, is_elsewhere: bool, environ: Mapping[str, str] = os.environ) -> str:
    """Includes the password only if they have it in their environment anyway, because the user has set it
    there; never if other users run them. Passwords in their user's files they find themselves."""
    url = store_address(settings)
    has_it_anyway = url in (environ.get("JOBLENS_STORE"), environ.get("JOBLENS_STORE_URL"))
    return url if has_it_anyway and not is_elsewhere else store_name(settings)


def retrying_store(
    store: Store, notify: Callable[[str], None], timeout_s: float | None = None
) -> RetryingStore:
    """`notify` is called once per outage. After the time-out its error is raised."""
    from joblens.stores.wrappers.retrying import RetryingStore

    inner = store.inner if isinstance(store, RetryingStore) else store
    return RetryingStore(inner, notify, until=None if timeout_s is None else time.monotonic() + timeout_s)
