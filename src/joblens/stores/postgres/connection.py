"""Connection to a PostgreSQL server: made when needed, restored after loss, and its errors.

Nothing waits for ever: connecting, every answer and every lock have their time. What fails is a StoreError at
once; the next call tries anew. A pooler in between is noticed, see pooled_connection.py.

A pooler in transaction mode (PgBouncer) hands each transaction to whichever connection to the server is free.
So nothing may be left in a session: no settings, no prepared statements, no locks that outlive a transaction.
Each transaction brings its settings along, sent together with its beginning.
"""

import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg import errors, pq, sql, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from joblens.model.errors import InputError, StoreCorrupt, StoreError
from joblens.model.settings import without_password

Connection = psycopg.Connection[tuple[Any, ...]]
RV = TypeVar("RV")

SCHEMA = "joblens"  # the tables lie in a schema of their own: the database may be used for other things too
DIRECT_MARK = (
    "joblens.direct"  # a setting that nobody else makes: who has it has been heard by the server itself
)
_ANSWER_S = 60.0
# Not brought along with every transaction: of no use there, or not worth its while.
_OF_SESSIONS = (
    DIRECT_MARK,
    "default_transaction_read_only",
    "idle_in_transaction_session_timeout",
    "timezone",
)


class PatientConnection(Connection):
    """One that gives up when the server says nothing, however alive its host is."""

    patience_s = _ANSWER_S

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        patience_s = self.patience_s if timeout is None else timeout
        fileno = self.pgconn.socket
        try:
            return waiting.wait(gen, fileno, interval=interval, timeout=patience_s)
        except errors._WaitTimeout:  # noqa: SLF001 - raised by the call above, and by no other name
            self.pgconn.finish()  # whatever it was to do, its answer can no more be told from the next one's
            raise psycopg.OperationalError(f"no answer within {patience_s:g} s") from None
        except BaseException:
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()  # interrupted half way
            raise

    def begin(self, how: str = "BEGIN") -> None:
        self.execute(how.encode())

    def together(self) -> AbstractContextManager[object]:
        """Statements are sent without waiting for the answers to those before."""
        return self.pipeline()

    def allow(self, seconds: float | None) -> None:
        """How long a statement may take from now on; None: as usual."""
        if seconds is None:
            self.execute("RESET statement_timeout")
        else:
            self.execute("SELECT set_config('statement_timeout', %s, false)", (f"{seconds * 1000:.0f}",))

    def execute_alone(self, statement: str) -> None:
        """What the server does in no transaction of ours. Names of tables need their schema."""
        self.execute(statement.encode())


class PooledConnection(PatientConnection):
    """A statement by itself goes as it is: its tables are named with their schema. Nothing is sent ahead of
    answers: what the driver sends behind the last of them would hold a connection to the server for ever."""

    _usual: dict[str, str]
    _settings: bytes

    def bring_along(self, settings: dict[str, str]) -> None:
        self._usual = {name: value for name, value in settings.items() if name not in _OF_SESSIONS}
        self._bring(self._usual)

    def _bring(self, settings: dict[str, str]) -> None:
        lines = (
            sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in settings.items()
        )
        self._settings = sql.SQL("; ").join(lines).as_bytes()

    def begin(self, how: str = "BEGIN") -> None:
        super().execute(how.encode() + b"; " + self._settings)

    def together(self) -> AbstractContextManager[object]:
        return nullcontext()

    def allow(self, seconds: float | None) -> None:
        other = {} if seconds is None else {"statement_timeout": f"{seconds * 1000:.0f}"}
        self._bring({**self._usual, **other})


def has_mark(connection: Connection) -> bool:
    row = connection.execute(f"SELECT current_setting('{DIRECT_MARK}', true)".encode()).fetchone()
    return row == ("on",)


def is_refused_by_pooler(error: psycopg.OperationalError) -> bool:
    return "unsupported startup parameter" in str(error)


_REASONS: list[tuple[tuple[type[psycopg.Error], ...], str, str]] = [
    (
        (errors.InvalidPassword, errors.InvalidAuthorizationSpecification),
        "does not let us in",
        "check user and password; ~/.pgpass and PGPASSWORD are read as well",
    ),
    ((errors.InvalidCatalogName,), "has no such database", "make it with `createdb`, or name another"),
    (
        (errors.InsufficientPrivilege,),
        "may not be used so by this user",
        "let its owner grant the rights: CREATE on the database, or all on the schema joblens",
    ),
    ((errors.ReadOnlySqlTransaction,), "is read-only", "name the primary server, not its standby"),
    ((errors.DiskFull,), "has no disk space left", "free some on the server"),
    ((errors.LockNotAvailable,), "is locked by another session", "try again; a long upkeep may hold it"),
    ((errors.QueryCanceled,), "did not answer in time", "try again; the server may be overloaded"),
    ((errors.TooManyConnections,), "has no connection left", "raise max_connections on the server"),
    ((errors.DataCorrupted, errors.IndexCorrupted), "is damaged", "restore a backup of the database"),
]


def translated_error(error: psycopg.Error, shown: str) -> StoreError:
    said = " ".join(str(error).split())
    for kinds, what, hint in _REASONS:
        if isinstance(error, kinds):
            kind = StoreCorrupt if errors.DataCorrupted in kinds else StoreError
            return kind(f"the store {shown} {what} ({said})", hint=hint)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreError(
            f"the store {shown} cannot be reached ({said})",
            hint="check that the server runs, and what the URL says of it",
        )
    return StoreError(f"the store {shown} failed ({type(error).__name__}: {said})")


@contextmanager
def store_errors(shown: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translated_error(error, shown) from error


T = TypeVar("T")

__all__ = ["SCHEMA", "Connection", "Database"]

_CONNECT_S = 5
_LOCK_S = 30.0
_MOST_TRIES = 12
_PAUSE_S = 0.01

# A peer that is gone without a word is noticed within this time. What the URL says itself is left alone.
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": _CONNECT_S,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "joblens",
    "client_encoding": "UTF8",
}
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure, errors.UniqueViolation)


class Database:
    """A server's database as one store uses it: by one connection behind a lock."""

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        answer_s: float = _ANSWER_S,
        on_connect: Callable[[Connection], None] | None = None,
    ) -> None:
        self.shown = without_password(url)
        self.read_only = read_only
        self._answer_s = answer_s
        self._parameters = _parameters(url, self.shown)
        self._given_options = self._parameters.pop("options", None)
        self._settings = _settings(answer_s, read_only=read_only)
        self._is_pooled = False
        self._on_connect = on_connect
        self._lock = threading.RLock()
        self._connection: PatientConnection | None = None
        self._pid = os.getpid()
        self._refusal: psycopg.OperationalError | None = None  # of the last try to connect
        self._quiet_until_s = 0.0
        self.times_connected = 0  # what was learnt of the store before may be wrong after the next time

    @contextmanager
    def use(self, *, patience_s: float | None = None) -> Iterator[PatientConnection]:
        """Each statement is a transaction of its own. `patience_s`: for what takes long, on both sides."""
        with self._lock, store_errors(self.shown):
            connection = self._connected()
            try:
                with _patient(connection, patience_s):
                    yield connection
            finally:
                if connection.closed or connection.broken:
                    self._drop()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One snapshot for several questions."""
        with self.use() as connection:
            connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            with _ending(connection):
                yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """All or nothing. Tried again from the start when it and others were in each other's way, so `work`
        must not keep anything of a try that failed. Statements are sent without waiting for those before,
        until `work` fetches what one of them found."""
        return self._tried_again(lambda connection: _in_one_go(connection, work))

    def at_once(self, work: Callable[[Connection], T]) -> T:
        """The same for a single statement, which needs no more than itself."""
        return self._tried_again(work)

    def _tried_again(self, work: Callable[[PatientConnection], T]) -> T:
        with self.use() as connection:
            for left in reversed(range(_MOST_TRIES)):
                try:
                    return work(connection)
                except _AGAIN:
                    if not left:
                        raise
                    time.sleep(random.uniform(0, _PAUSE_S * (_MOST_TRIES - left)))  # noqa: S311
        raise AssertionError

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connected(self) -> PatientConnection:
        if self._pid != os.getpid():
            # After a fork the connection is the parent's; two must not speak on it.
            self._connection, self._pid = None, os.getpid()
        if self._connection is not None and _was_lost(self._connection):
            self._drop()
        if self._connection is None:
            connection = self._connect()
            try:
                connection.patience_s = _beyond(self._answer_s)
                if self._on_connect is not None:
                    self._on_connect(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self.times_connected += 1
        return self._connection

    def _connect(self) -> PatientConnection:
        """A try that took its time is not made again at once: who asks every second would do nothing but
        wait for a server that says nothing."""
        began_s = time.monotonic()
        if self._refusal is not None and began_s < self._quiet_until_s:
            raise self._refusal
        try:
            connection = self._open()
        except psycopg.OperationalError as error:
            now_s = time.monotonic()
            self._refusal, self._quiet_until_s = error.with_traceback(None), now_s + (now_s - began_s)
            raise
        self._refusal = None
        return connection

    def _open(self) -> PatientConnection:
        """A pooler refuses to be told settings, or forgets them: then every transaction brings its own."""
        if not self._is_pooled:
            try:
                direct = PatientConnection.connect(**self._parameters, options=self._options())
            except psycopg.OperationalError as error:
                if not is_refused_by_pooler(error):
                    raise
            else:
                if has_mark(direct):
                    return direct
                direct.close()
            self._is_pooled = True
        pooled = PooledConnection.connect(**self._parameters, prepare_threshold=None)
        pooled.bring_along(self._settings)
        return pooled

    def _options(self) -> str:
        given = str(self._given_options or "")
        return " ".join([f"-c {name}={value}" for name, value in self._settings.items()] + [given]).strip()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _in_one_go(connection: PatientConnection, work: Callable[[Connection], T]) -> T:
    try:
        with connection.together():
            connection.begin()
            result = work(connection)
            connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise
    return result


@contextmanager
def _ending(connection: Connection) -> Iterator[None]:
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: Connection) -> None:
    if not connection.closed:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()


@contextmanager
def _patient(connection: PatientConnection, patience_s: float | None) -> Iterator[None]:
    if patience_s is None:
        yield
        return
    usual = connection.patience_s
    connection.allow(patience_s)
    connection.patience_s = _beyond(patience_s)
    try:
        yield
    finally:
        if not connection.closed:
            connection.patience_s = usual
            connection.allow(None)


def _beyond(patience_s: float) -> float:
    """The server's own limit comes first: it can say what it was."""
    return patience_s * 1.1 + 1.0


def _was_lost(connection: PatientConnection) -> bool:
    """Told without asking the server: one that said goodbye meanwhile has left something to be read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _parameters(url: str, shown: str) -> dict[str, Any]:
    given = _understood(url)
    if given is None:
        raise InputError(
            f"store '{shown}' is not a URL that PostgreSQL understands",
            hint="write postgresql://user@host:5432/database; %-encode @ : / ? # in user and password",
        )
    return {**_DEFAULTS, **given, "autocommit": True}


def _settings(answer_s: float, *, read_only: bool) -> dict[str, str]:
    """What the server is to keep to for this connection."""
    settings = {
        "search_path": SCHEMA,
        "statement_timeout": f"{answer_s * 1000:.0f}",
        "lock_timeout": f"{_LOCK_S * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{answer_s * 1000:.0f}",
        "jit": "off",  # every statement here is short
        "timezone": "UTC",
        DIRECT_MARK: "on",
    }
    return settings | {"default_transaction_read_only": "on"} if read_only else settings


def _understood(url: str) -> dict[str, Any] | None:
    """None when it cannot be, and when it is plain that part of a password would be taken for something else:
    what the driver says of those parts later, it would say aloud."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        return None
    ports = str(given.get("port") or "").replace(",", "")
    places = f"{given.get('host') or ''}{given.get('dbname') or ''}{given.get('user') or ''}"
    return None if "@" in places or (ports and not ports.isdigit()) else given
