"""Connection to a PostgreSQL server: opened when needed, reopened after loss; translates errors.

Nothing blocks indefinitely: connecting, every answer and every lock have a time limit. A failure raises
StoreError at once; the next call retries.

A pooler in transaction mode (PgBouncer) hands each transaction to any free connection to the server. So a
session must hold no state: no settings, no prepared statements, no locks that outlive a transaction. Each
transaction sends its settings together with its BEGIN.
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

SCHEMA = "joblens"  # a schema of its own, because the database may be shared with other programs
DIRECT_MARK = "joblens.direct"  # if it is set, the session's settings have reached the server
_ANSWER_S = 60.0
# Not sent with every transaction: without effect there, or not worth the bytes.
_OF_SESSIONS = (
    DIRECT_MARK,
    "idle_in_transaction_session_timeout",
    "timezone",
)


class TimeLimitedConnection(Connection):
    """Gives up when the server does not answer, even if its host is alive."""

    timeout_s = _ANSWER_S

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        timeout_s = self.timeout_s if timeout is None else timeout
        fileno = self.pgconn.socket
        try:
            return waiting.wait(gen, fileno, interval=interval, timeout=timeout_s)
        except errors._WaitTimeout:  # noqa: SLF001 - raised by the call above, and by no other name
            self.pgconn.finish()  # a late answer could be taken for that of the next query
            raise psycopg.OperationalError(f"no answer within {timeout_s:g}s") from None
        except BaseException:
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()  # interrupted half way through
            raise

    def begin(self, how: str = "BEGIN") -> None:
        self.execute(how.encode())

    def together(self) -> AbstractContextManager[object]:
        """Pipelines statements: sends them without waiting for earlier answers."""
        return self.pipeline()

    def allow(self, seconds: float | None) -> None:
        """Sets how long a statement may take from now on; None: the default."""
        if seconds is None:
            self.execute("RESET statement_timeout")
        else:
            self.execute("SELECT set_config('statement_timeout', %s, false)", (f"{seconds * 1000:.0f}",))

    def execute_alone(self, statement: str) -> None:
        """Runs a statement outside any transaction. Table names need their schema."""
        self.execute(statement.encode())


class PooledConnection(TimeLimitedConnection):
    """Connection through a pooler.

    Single statements are sent unchanged: their tables are named with their schema.

    Does not pipeline: the sync message after the last answer would hold a server connection indefinitely.
    """

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
        "rejected the login",
        "check user and password; ~/.pgpass and PGPASSWORD are read as well",
    ),
    ((errors.InvalidCatalogName,), "has no such database", "create it with `createdb`, or name another"),
    (
        (errors.InsufficientPrivilege,),
        "denies this user access",
        "let its owner grant the rights: CREATE on the database, or all on the schema joblens",
    ),
    ((errors.ReadOnlySqlTransaction,), "is read-only", "name the primary server, not its standby"),
    ((errors.DiskFull,), "has no disk space left", "free some on the server"),
    ((errors.LockNotAvailable,), "is locked by another session", "try again; maintenance may hold the lock"),
    ((errors.QueryCanceled,), "did not answer in time", "try again; the server may be overloaded"),
    ((errors.TooManyConnections,), "has no connection left", "raise max_connections on the server"),
    ((errors.DataCorrupted, errors.IndexCorrupted), "is damaged", "restore a backup of the database"),
]


def translated_error(error: psycopg.Error, shown: str) -> StoreError:
    detail = " ".join(str(error).split())
    for kinds, what, hint in _REASONS:
        if isinstance(error, kinds):
            kind = StoreCorrupt if errors.DataCorrupted in kinds else StoreError
            return kind(f"the store {shown} {what} ({detail})", hint=hint)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreError(
            f"the store {shown} cannot be reached ({detail})",
            hint="check that the server runs, and that the URL is right",
        )
    return StoreError(f"the store {shown} failed ({type(error).__name__}: {detail})")


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

# Detects a dead peer within this time. Values in the URL take precedence.
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
    """Database as used by one store: one connection behind a lock."""

    def __init__(
        self,
        url: str,
        *,
        answer_s: float = _ANSWER_S,
        on_connect: Callable[[Connection], None] | None = None,
    ) -> None:
        self.shown = without_password(url)
        self._answer_s = answer_s
        self._parameters = _parameters(url, self.shown)
        self._given_options = self._parameters.pop("options", None)
        self._settings = _settings(answer_s)
        self._is_pooled = False
        self._on_connect = on_connect
        self._lock = threading.RLock()
        self._connection: TimeLimitedConnection | None = None
        self._pid = os.getpid()
        self._refusal: psycopg.OperationalError | None = None  # when the last attempt to connect failed
        self._quiet_until_s = 0.0
        self.times_connected = 0  # cached knowledge about the store may be wrong after a reconnect

    @contextmanager
    def use(self, *, timeout_s: float | None = None) -> Iterator[TimeLimitedConnection]:
        """Each statement is a transaction of its own. `timeout_s`: longer time limit, for both sides."""
        with self._lock, store_errors(self.shown):
            connection = self._connected()
            try:
                with _patient(connection, timeout_s):
                    yield connection
            finally:
                if connection.closed or connection.broken:
                    self._drop()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Reads several queries from one snapshot."""
        with self.use() as connection:
            connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            with _ending(connection):
                yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in one transaction; repeats it after a serialization failure or deadlock.

        So `work` must not keep anything of a failed attempt. Statements are pipelined until `work` fetches a
        result.
        """
        return self._tried_again(lambda connection: _in_one_go(connection, work))

    def at_once(self, work: Callable[[Connection], T]) -> T:
        """Runs a single statement, without the overhead of a transaction block."""
        return self._tried_again(work)

    def _tried_again(self, work: Callable[[TimeLimitedConnection], T]) -> T:
        with self.use() as connection:
            for tries_left in reversed(range(_MOST_TRIES)):
                try:
                    return work(connection)
                except _AGAIN:
                    if not tries_left:
                        raise
                    time.sleep(random.uniform(0, _PAUSE_S * (_MOST_TRIES - tries_left)))  # noqa: S311
        raise AssertionError

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connected(self) -> TimeLimitedConnection:
        if self._pid != os.getpid():
            # After a fork the connection is the parent's; two processes must not share it.
            self._connection, self._pid = None, os.getpid()
        if self._connection is not None and _is_closed(self._connection):
            self._drop()
        if self._connection is None:
            connection = self._connect()
            try:
                connection.timeout_s = _above_server_limit(self._answer_s)
                if self._on_connect is not None:
                    self._on_connect(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self.times_connected += 1
        return self._connection

    def _connect(self) -> TimeLimitedConnection:
        """Connects, but not again right after a slow failure.

        Else a caller that polls every second would spend all its time waiting for an unresponsive server.
        """
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

    def _open(self) -> TimeLimitedConnection:
        """Opens a connection. A pooler rejects or drops settings: then every transaction sends its own."""
        if not self._is_pooled:
            try:
                direct = TimeLimitedConnection.connect(**self._parameters, options=self._options())
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
        options = [f"-c {name}={value}" for name, value in self._settings.items()]
        return " ".join([*options, str(self._given_options or "")]).strip()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _in_one_go(connection: TimeLimitedConnection, work: Callable[[Connection], T]) -> T:
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
def _patient(connection: TimeLimitedConnection, timeout_s: float | None) -> Iterator[None]:
    if timeout_s is None:
        yield
        return
    usual = connection.timeout_s
    connection.allow(timeout_s)
    connection.timeout_s = _above_server_limit(timeout_s)
    try:
        yield
    finally:
        if not connection.closed:
            connection.timeout_s = usual
            connection.allow(None)


def _above_server_limit(timeout_s: float) -> float:
    """Returns a time limit above the server's own, which produces the better error message."""
    return timeout_s * 1.1 + 1.0


def _is_closed(connection: TimeLimitedConnection) -> bool:
    """Detects a closed connection without a round trip: the goodbye of the server is readable."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _parameters(url: str, shown: str) -> dict[str, Any]:
    parameters = _parse_url(url)
    if parameters is None:
        raise InputError(
            f"store '{shown}' is not a URL that PostgreSQL understands",
            hint="write postgresql://user@host:5432/database; %-encode @ : / ? # in user and password",
        )
    return {**_DEFAULTS, **parameters, "autocommit": True}


def _settings(answer_s: float) -> dict[str, str]:
    """Returns the session settings for this connection."""
    return {
        "search_path": SCHEMA,
        "statement_timeout": f"{answer_s * 1000:.0f}",
        "lock_timeout": f"{_LOCK_S * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{answer_s * 1000:.0f}",
        "jit": "off",  # every statement here is short
        "timezone": "UTC",
        DIRECT_MARK: "on",
    }


def _parse_url(url: str) -> dict[str, Any] | None:
    """Parses a URL. None: it is invalid, or part of the password would be read as another component.

    The driver's error messages would show such a part in clear text.
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        return None
    ports = str(parameters.get("port") or "").replace(",", "")
    parts = f"{parameters.get('host') or ''}{parameters.get('dbname') or ''}{parameters.get('user') or ''}"
    return None if "@" in parts or (ports and not ports.isdigit()) else parameters
