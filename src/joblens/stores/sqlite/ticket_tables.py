"""What is told about workers, queues and states."""

from collections.abc import Sequence

import apsw
import msgspec
from msgspec.structs import replace

from joblens.model.delivery import Backlog, WorkerInfo
from joblens.model.job import Status
from joblens.stores.sqlite.sql import TICKET_QUERIES
from joblens.stores.sqlite.store_clock import now_us
from joblens.stores.sqlite.ticket_rows import json_list
from joblens.stores.ticket_endings import HEARD_OF_FOR_S

_worker = msgspec.json.Decoder(WorkerInfo)


def workers(connection: apsw.Connection) -> list[WorkerInfo]:
    since_us = now_us() - round(HEARD_OF_FOR_S * 1_000_000)
    rows = connection.execute(TICKET_QUERIES["workers"], (since_us,))
    return [replace(_worker.decode(data), seen_at_us=seen_at_us) for seen_at_us, data in rows]


def backlog(connection: apsw.Connection) -> list[Backlog]:
    at_us = now_us()
    return [
        Backlog(queue, waiting, held, 0 if since_us is None else max(0, at_us - since_us))
        for queue, waiting, held, since_us in connection.execute(TICKET_QUERIES["backlog"])
    ]


def states(connection: apsw.Connection, uuids: Sequence[str]) -> dict[str, Status]:
    rows = connection.execute(TICKET_QUERIES["states"], (json_list(uuids),))
    return {uuid: Status(status) for uuid, status in rows}
