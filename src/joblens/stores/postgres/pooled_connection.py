"""Connections that give up, and those through a pooler.

A pooler in transaction mode (PgBouncer) hands each transaction to whichever connection to the server is free.
So nothing may be left in a session: no settings, no prepared statements, no locks that outlive a transaction.
Each transaction brings its settings along, sent together with its beginning."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg import errors, pq, sql, waiting
from psycopg.abc import PQGen

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
