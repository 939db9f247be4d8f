"""Lease renewal: a worker reports that it is alive and reads its capacity and requests, in one statement."""

from collections.abc import Mapping

import msgspec

from joblens.model.delivery import Holding, Renewal, WorkerInfo
from joblens.stores.postgres.connection import Database
from joblens.stores.postgres.tables import PostgresTicketBook
from joblens.stores.queue.claims import count_workers_now, holding_of, is_time_to_count, only_user

_encoder = msgspec.json.Encoder()


def renew(database: Database, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
    with database.use() as connection:
        book = PostgresTicketBook(connection, lambda _: None)
        rows = book.ask(
            "renew_at_once",
            name=worker.name,
            host=worker.host,
            data=_encoder.encode(worker),
            lease_us=round(lease_s * 1_000_000),
            uuids=list(held),
            fences=list(held.values()),
        )
        workers = count_workers_now(book, book.now_us()) if is_time_to_count() else 0
    return Renewal(
        fenced=frozenset(held) - {uuid for uuid, _ in rows},
        cancelled=frozenset(uuid for uuid, is_cancelled in rows if is_cancelled),
        workers=workers,
    )


def holdings_near(database: Database, near: WorkerInfo) -> list[Holding]:
    with database.use() as connection:
        book = PostgresTicketBook(connection, lambda _: None)
        rows = book.ask("holdings_near", worker=near.name, host=near.host)
    return [holding_of(row) for row in rows]


def is_any_waiting(database: Database, worker: WorkerInfo, older_than_s: float) -> bool:
    with database.use() as connection:
        book = PostgresTicketBook(connection, lambda _: None)
        [(is_waiting,)] = book.ask(
            "is_any_waiting",
            queues=list(worker.routes),
            user=only_user(worker),
            older_than_us=round(older_than_s * 1_000_000),
        )
    return bool(is_waiting)
