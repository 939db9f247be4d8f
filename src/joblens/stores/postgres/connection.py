"""One connection to the server, made when it is needed and again after it was lost.

Nothing waits for ever: connecting, every answer and every lock have their time. What fails is a StoreError at
once; the next call tries anew."""

import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from joblens.model.errors import InputError
from joblens.model.store_url import without_password
from joblens.stores.postgres.errors import store_errors

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")
RV = TypeVar("RV")

SCHEMA = "joblens"  # the tables lie in a schema of their own: the database may be used for other things too
_CONNECT_S = 5
_ANSWER_S = 60.0
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


class _Connection(psycopg.Connection[tuple[Any, ...]]):
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
            if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()  # interrupted half way
            raise


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
        self._parameters = _parameters(url, self.shown, answer_s=answer_s, read_only=read_only)
        self._on_connect = on_connect
        self._lock = threading.RLock()
        self._connection: _Connection | None = None
        self._pid = os.getpid()
        self._refusal: psycopg.OperationalError | None = None  # of the last try to connect
        self._quiet_until_s = 0.0
        self.times_connected = 0  # what was learnt of the store before may be wrong after the next time

    @contextmanager
    def use(self, *, patience_s: float | None = None) -> Iterator[Connection]:
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
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            with _ending(connection):
                yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """All or nothing. Tried again from the start when it and others were in each other's way, so `work`
        must not keep anything of a try that failed. Statements are sent without waiting for those before,
        until `work` fetches what one of them found."""
        with self.use() as connection:
            for left in reversed(range(_MOST_TRIES)):
                try:
                    return _in_one_go(connection, work)
                except _AGAIN:
                    if not left:
                        raise
                    time.sleep(random.uniform(0, _PAUSE_S * (_MOST_TRIES - left)))  # noqa: S311
        raise AssertionError

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connected(self) -> _Connection:
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

    def _connect(self) -> _Connection:
        """A try that took its time is not made again at once: who asks every second would do nothing but
        wait for a server that says nothing."""
        began_s = time.monotonic()
        if self._refusal is not None and began_s < self._quiet_until_s:
            raise self._refusal
        try:
            connection = _Connection.connect(**self._parameters)
        except psycopg.OperationalError as error:
            now_s = time.monotonic()
            self._refusal, self._quiet_until_s = error.with_traceback(None), now_s + (now_s - began_s)
            raise
        self._refusal = None
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _in_one_go(connection: Connection, work: Callable[[Connection], T]) -> T:
    try:
        with connection.pipeline():
            connection.execute("BEGIN")
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
def _patient(connection: _Connection, patience_s: float | None) -> Iterator[None]:
    if patience_s is None:
        yield
        return
    usual = connection.patience_s
    connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{patience_s * 1000:.0f}",))
    connection.patience_s = _beyond(patience_s)
    try:
        yield
    finally:
        if not connection.closed:
            connection.patience_s = usual
            connection.execute("RESET statement_timeout")


def _beyond(patience_s: float) -> float:
    """The server's own limit comes first: it can say what it was."""
    return patience_s * 1.1 + 1.0


def _was_lost(connection: _Connection) -> bool:
    """Told without asking the server: one that said goodbye meanwhile has left something to be read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _parameters(url: str, shown: str, *, answer_s: float, read_only: bool) -> dict[str, Any]:
    given = _understood(url)
    if given is None:
        raise InputError(
            f"store '{shown}' is not a URL that PostgreSQL understands",
            hint="write postgresql://user@host:5432/database; %-encode @ : / ? # in user and password",
        )
    options = [
        f"-c search_path={SCHEMA}",
        f"-c statement_timeout={answer_s * 1000:.0f}",
        f"-c lock_timeout={_LOCK_S * 1000:.0f}",
        f"-c idle_in_transaction_session_timeout={answer_s * 1000:.0f}",
        "-c jit=off",  # every statement here is short
        "-c timezone=UTC",
    ]
    if read_only:
        options.append("-c default_transaction_read_only=on")
    given["options"] = " ".join([*options, str(given.get("options") or "")]).strip()
    return {**_DEFAULTS, **given, "autocommit": True}


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
