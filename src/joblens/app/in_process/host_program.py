"""State of a monitor inside a host program: a connection to its store. A forked child starts without its
parent's."""

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from joblens.agent.measuring.window_measurement import Measurement
from joblens.app.in_process.host_meter import has_linux
from joblens.app.jobs.epilog import apply_retention
from joblens.files.private import make_private_folder
from joblens.files.processes import process_start_ticks
from joblens.model.errors import ConfigError, InputError, JoblensError, StoreError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Owner, Record
from joblens.model.jobs.sample import Sample
from joblens.model.settings import LogSettings, Settings
from joblens.model.writes import (
    DetailsTaken,
    JobEnded,
    JobQueued,
    JobStarted,
    ProvenanceSeen,
    SamplesTaken,
    Write,
)
from joblens.ports.store import Sink, Store
from joblens.probes.host.machine_load import HostFacts, read_host

T = TypeVar("T")


def settings_for(log_dir: str | None) -> Settings:
    """Returns the effective settings, with store, journal and history file in `log_dir` if given."""
    from joblens.app.wiring.settings import load_settings

    settings = load_settings().settings
    if log_dir is None:
        return settings
    return replace(
        settings,
        store=replace(
            settings.store,
            url=os.path.join(log_dir, "joblens.db"),
            journal_dir=os.path.join(log_dir, "journal"),
        ),
        sinks=replace(
            settings.sinks,
            history=replace(settings.sinks.history, path=os.path.join(log_dir, "jobs_history.jsonl")),
        ),
    )


def _portable_facts() -> HostFacts:
    from joblens.probes.host.portable import (
        read_portable_facts,  # imports psutil if installed
    )

    return read_portable_facts()


def private_dir(path: "str | os.PathLike[str]") -> str:
    """Absolute, because the host program may change its directory; created if missing."""
    absolute = os.path.abspath(os.path.expanduser(os.fspath(path)))
    try:
        make_private_folder(absolute)
    except OSError as error:
        raise InputError(
            f"{absolute}: cannot be used as a log directory: {error.strerror}",
            hint="give a directory that exists or can be created",
        ) from error
    return absolute


class HostConnection:
    """The store of one monitor, opened at first use. Its failures never disturb the host program: lost data
    is a warning, once."""

    def __init__(self, log_dir: str | None, warn: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._warn = warn
        self._restart()
        _connections.add(self)

    def _restart(self) -> None:
        self._lock = threading.RLock()  # held while the store is used
        self._gate = (
            threading.RLock()
        )  # closed by a fork, which might otherwise never get the lock from busy threads
        self._users = 0  # nested uses by the thread that holds the lock
        self._store: Store | None = None
        self._sinks: list[Sink] = []
        self._settings: Settings | None = None
        self._owner: Owner | None = None
        self._user = ""
        self._facts: HostFacts | None = None
        self._has_warned = False
        self._why_unusable = ""
        self._provenance: ProvenanceSeen | None = None
        self._has_recorded_environment = False

    def settings(self) -> Settings:
        with self._lock:
            if self._settings is None:
                self._settings = settings_for(self._log_dir)
                self._set_up_log(self._settings.logs)
            return self._settings

    def _set_up_log(self, logs: LogSettings) -> None:
        """The program's own logging is not changed unless the settings ask for it."""
        if logs == LogSettings():
            return
        from joblens.app.wiring.logging_setup import set_up_logging_in_host_program

        try:
            set_up_logging_in_host_program(logs)
        except ConfigError as error:
            self._warn(str(error))

    def host(self) -> HostFacts:
        with self._lock:
            if self._facts is None:
                self._facts = read_host() if has_linux() else _portable_facts()
            return self._facts

    def owner(self) -> Owner:
        with self._lock:
            if self._owner is None:
                pid = os.getpid()
                self._owner = Owner(
                    host=self.host().hostname,
                    pid=pid,
                    start_ticks=(process_start_ticks(pid) or 0) if has_linux() else 0,
                    boot_id=self.host().boot_id,
                )
            return self._owner

    def user(self) -> str:
        # Imported with the lock held, like everything here: a child forked while another thread imports a
        # module could never import it.
        with self._lock:
            if not self._user:
                self._user = _current_user()
            return self._user

    def open(self) -> None:
        """Opens the store before the first job, so that its time does not include it."""
        self._try(lambda _: self.provenance_digest())

    def provenance_digest(self) -> str:
        """Returns the digest of the environment of this program's jobs; '': not collected, or unreadable."""
        with self._lock:
            if self._provenance is None:
                self._provenance = _environment_of_program(self.host(), self.settings())
            return "" if self._provenance is None else self._provenance.digest

    def started(self, record: Record) -> None:
        attempt = record.attempt
        assert attempt is not None

        def write(store: Store) -> None:
            writes: list[Write] = [JobQueued(record.job), JobStarted(record.job.uuid, attempt)]
            if self._provenance is not None and not self._has_recorded_environment:
                writes.insert(0, self._provenance)
            store.apply(writes)
            self._has_recorded_environment = True
            for sink in self._sinks:
                sink.job_started(record)

        self._try(write)

    def sampled(
        self, uuid: str, first: int, samples: tuple[Sample, ...], details_writes: Sequence[DetailsTaken] = ()
    ) -> None:
        def write(store: Store) -> None:
            store.apply([SamplesTaken(uuid, first, samples), *details_writes])
            for sink in self._sinks:
                sink.samples_taken(uuid, samples)
                for news in details_writes:
                    sink.details_taken(uuid, news.details)

        self._try(write)

    def ended(self, record: Record, measured: Measurement) -> Record:
        """Returns the record from the store, with its number, if the store answers."""
        uuid, outcome = record.job.uuid, record.outcome
        samples, details = measured.pending, measured.details
        assert outcome is not None

        def write(store: Store) -> Record:
            details_writes = [] if details == Details() else [DetailsTaken(uuid, details)]
            batch = SamplesTaken(uuid, measured.first_pending, samples)
            with self._pending(record):
                store.apply([batch, *details_writes, JobEnded(uuid, outcome)])
                stored = record
                with contextlib.suppress(JoblensError):
                    stored = store.find(uuid)
                for sink in self._sinks:
                    sink.samples_taken(uuid, samples)
                    if details_writes:
                        sink.details_taken(uuid, details)
                    sink.jobs_ended([stored])
            apply_retention(store, self.settings(), outcome.ended_at_us)
            return stored

        return self._try(write) or record

    @contextlib.contextmanager
    def _pending(self, record: Record) -> Iterator[None]:
        """For the next joblens, if this program is killed before the sinks have the end."""
        if not self._sinks or record.attempt is None or not has_linux():
            yield
            return
        from joblens.agent.runtime.recorder import PendingEnds
        from joblens.app.wiring.drivers import spool_dir, store_name

        pending = PendingEnds(spool_dir(store_name(self.settings())), record.attempt.owner)
        with contextlib.closing(pending), pending.around([record.job.uuid]):
            yield

    def read(self, question: Callable[[Store], T]) -> T:
        with self._using() as store:
            return question(store)

    def recover_orphans(self) -> None:
        """Finalizes jobs whose host program died, before anything is shown about jobs."""
        from joblens.app.queue.recovery import recover_dead_owners

        with contextlib.suppress(JoblensError), self._using() as store:
            recover_dead_owners(store, self.settings(), warn=self._warn)

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
            sinks, self._sinks = self._sinks, []
            for sink in sinks:
                sink.close()
            if store is not None:
                store.close()

    def _try(self, action: Callable[[Store], T]) -> T | None:
        """Returns None if it failed."""
        try:
            with self._using() as store:
                return action(store)
        except (JoblensError, OSError) as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(f"the job's data could not be written: {error}")
            return None

    @contextlib.contextmanager
    def _using(self) -> Iterator[Store]:
        with self._gate:
            pass
        with self._lock:
            if self._why_unusable:
                raise StoreError(self._why_unusable)
            if self._store is None:
                self._store, self._sinks = self._opened()
            self._users += 1
            try:
                yield self._store
            finally:
                self._users -= 1

    def _opened(self) -> tuple[Store, list[Sink]]:
        from joblens.app.wiring.drivers import open_sinks, open_store

        try:
            return open_store(self.settings(), self._warn), open_sinks(self.settings(), self._warn)
        except ImportError as error:  # no file locks on this system
            raise StoreError(f"no store can be created here: {error}") from error

    # -- Around a fork. SQLite keeps the locks of a process in its memory: a child that inherits an open
    # database would believe to hold locks that only its parent has. So nothing may be open while forking.

    def before_fork(self) -> None:
        self._gate.acquire(timeout=_FORK_TIMEOUT_S)
        if self._lock.acquire(timeout=_FORK_TIMEOUT_S) and not self._users:
            self.close()

    def after_fork_in_parent(self) -> None:
        for lock in (self._gate, self._lock):
            with contextlib.suppress(RuntimeError):  # not ours: waiting was given up
                lock.release()

    def after_fork_in_child(self) -> None:
        inherited = self._store
        self._restart()
        if inherited is not None:
            _never_closed.append(inherited)
            self._why_unusable = (
                "the program forked while its store was in use; the child process cannot use it"
            )


def _current_user() -> str:
    if not has_linux():
        import getpass

        try:
            return getpass.getuser()
        except (OSError, LookupError, ImportError, AttributeError):
            return ""
    from joblens.app.wiring.agent_context import current_user

    return current_user()


_FORK_TIMEOUT_S = 5.0
_connections: "weakref.WeakSet[HostConnection]" = weakref.WeakSet()
_forking = threading.local()  # .held: connections, from just before a fork until just after it
_never_closed: list[Store] = []


def _before_fork() -> None:
    _forking.held = list(_connections)
    for connection in _forking.held:
        connection.before_fork()


def _after_fork_in_parent() -> None:
    for connection in _forking.held:
        connection.after_fork_in_parent()
    _forking.held = []


def _after_fork_in_child() -> None:
    for connection in _forking.held:
        connection.after_fork_in_child()
    _forking.held = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


def _environment_of_program(host: HostFacts, settings: Settings) -> ProvenanceSeen | None:
    """Read once. Starts nothing: a program may wait for any child."""
    if not settings.provenance.enabled or not has_linux():
        return None
    from joblens import __version__
    from joblens.agent.provenance.parts import ProvenanceParts
    from joblens.model.jobs.details import digest_of
    from joblens.probes.provenance.program_files import CommandKind, starting_words

    words = (sys.executable, *starting_words(sys.orig_argv, is_shell=False)[1:])
    try:
        kind = CommandKind(os.getcwd(), words, os.environ.get("PATH", ""))
        found, _, _ = ProvenanceParts(host, __version__, ()).collect(kind, asks_git=False)
    except OSError:
        return None
    return ProvenanceSeen(digest_of(found), found)
