"""What the store already has of the jobs that a batch of writes is about."""

from typing import Any

import msgspec

from joblens.model.jobs.job import Status
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.sql.rollup_sums import EndedJob

_Q = encoded_queries("writing.sql")


class KnownJob(msgspec.Struct):
    """One of them."""

    uuid: str
    number: int
    status: Status
    tool: str
    began_at_us: int
    ending: tuple[int | None, int | None, int | None, int | None, int | None, str | None]
    is_described: bool
    attempt_number: int
    fence: int
    has_free_ticket: bool = False  # nobody holds it

    def ended(self) -> EndedJob | None:
        return (self.tool, self.status.value, *self.ending[1:4]) if self.status.is_final else None

    def row(self) -> tuple[Any, ...]:
        state = self.number, self.status.value, self.began_at_us, self.attempt_number
        return *state, *self.ending


def known_jobs(connection: Connection, uuids: list[str]) -> dict[str, KnownJob]:
    found: dict[str, KnownJob] = {}
    if not uuids:
        return found
    for row in connection.execute(_Q["known_jobs"], (uuids,)).fetchall():
        uuid, number, status, tool, began, *rest = row
        ending, (is_described, attempt_number, fence, is_free) = tuple(rest[:6]), rest[6:]
        found[uuid] = KnownJob(
            uuid,
            number,
            Status(status),
            tool,
            began,
            ending,
            bool(is_described),
            attempt_number,
            fence,
            is_free,
        )
    return found
