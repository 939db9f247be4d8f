"""Who holds which ticket. Every function is called inside a transaction."""

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from joblens.model.delivery import Claim, Holding, Renewal, Ticket, WorkerInfo
from joblens.model.job import Attempt, Job
from joblens.stores.sqlite.sql import TICKET_QUERIES
from joblens.stores.sqlite.store_clock import now_us
from joblens.stores.sqlite.ticket_rows import Ending, end_jobs, json_list
from joblens.stores.ticket_endings import HEARD_OF_FOR_S, withdrawn

_encoder = msgspec.json.Encoder()
_job = msgspec.json.Decoder(Job)
_ticket = msgspec.json.Decoder(Ticket)
_attempt = msgspec.json.Decoder(Attempt)


def claim_those(
    connection: apsw.Connection, worker: WorkerInfo, uuids: Sequence[str], lease_s: float, level: int
) -> list[Claim]:
    claims = _claim(connection, "uuid", uuids, worker, lease_s, level)
    place = {uuid: number for number, uuid in enumerate(uuids)}
    return sorted(claims, key=lambda claim: place[claim.job.uuid])


def claim_oldest(
    connection: apsw.Connection,
    worker: WorkerInfo,
    most: int,
    lease_s: float,
    older_than_s: float,
    level: int,
) -> list[Claim]:
    until_us = now_us() - round(older_than_s * 1_000_000)
    user = _only_user(worker)
    waiting: list[tuple[int, int]] = []
    for queue in dict.fromkeys(worker.queues):
        rows = connection.execute(TICKET_QUERIES["oldest_waiting"], (queue, until_us, user, most))
        waiting += [(since_us, number) for since_us, number in rows]
    numbers = [number for _, number in sorted(waiting)[:most]]
    return _claim(connection, "id", numbers, worker, lease_s, level) if numbers else []


def any_waiting(connection: apsw.Connection, worker: WorkerInfo, older_than_s: float) -> bool:
    until_us = now_us() - round(older_than_s * 1_000_000)
    user = _only_user(worker)
    return any(
        list(connection.execute(TICKET_QUERIES["oldest_waiting"], (queue, until_us, user, 1)))
        for queue in worker.queues
    )


def _claim(
    connection: apsw.Connection,
    key: str,
    wanted: Sequence[object],
    worker: WorkerInfo,
    lease_s: float,
    level: int,
) -> list[Claim]:
    query = TICKET_QUERIES["waiting_of"].format(key=key)
    rows = list(connection.execute(query, (json_list(wanted), _only_user(worker))))
    at_us = now_us()
    until_us = at_us + round(lease_s * 1_000_000)
    claims: list[Claim] = []
    taken: list[tuple[str, int, int]] = []
    fences: list[tuple[int, int]] = []
    unwanted: list[Ending] = []
    for number, uuid, fence, job, ticket, lost_worker, lost_attempt, is_cancelled in rows:
        if is_cancelled:
            unwanted.append((uuid, fence, withdrawn(at_us)))
            continue
        taken.append((worker.name, until_us, number))
        fences.append((fence + 1, number))
        claims.append(
            Claim(
                job=_job.decode(job),
                ticket=_ticket.decode(ticket),
                fence=fence + 1,
                lost_worker=lost_worker,
                lost_attempt=None if lost_attempt is None else _attempt.decode(lost_attempt),
            )
        )
    connection.executemany(TICKET_QUERIES["take_ticket"], taken)
    connection.executemany(TICKET_QUERIES["raise_fence"], fences)
    end_jobs(connection, unwanted, level)
    return claims


def _only_user(worker: WorkerInfo) -> str | None:
    return None if worker.any_user else worker.user


def renew(
    connection: apsw.Connection, worker: WorkerInfo, held: Mapping[str, int], lease_s: float
) -> Renewal:
    at_us = now_us()
    connection.execute(TICKET_QUERIES["announce_worker"], (worker.name, at_us, _encoder.encode(worker)))
    connection.execute(
        TICKET_QUERIES["forget_workers_before"], (at_us - 24 * round(HEARD_OF_FOR_S * 1_000_000),)
    )
    until_us = at_us + round(lease_s * 1_000_000)
    rows = _held_by(connection, worker.name, held)
    connection.executemany(TICKET_QUERIES["renew_lease"], [(until_us, number) for number, _ in rows.values()])
    return Renewal(
        fenced=frozenset(held.keys() - rows.keys()),
        cancelled=frozenset(uuid for uuid, (_, is_cancelled) in rows.items() if is_cancelled),
    )


def _held_by(
    connection: apsw.Connection, worker: str, held: Mapping[str, int]
) -> dict[str, tuple[int, bool]]:
    """Of these, those that it really holds: uuid -> number, whether somebody wants it to end."""
    if not held:
        return {}
    rows = connection.execute(TICKET_QUERIES["held_now"], (json_list(held),))
    return {
        uuid: (number, bool(is_cancelled))
        for uuid, number, fence, holder, is_cancelled in rows
        if holder == worker and fence == held[uuid]
    }


def holdings(connection: apsw.Connection) -> list[Holding]:
    at_us = now_us()
    return [
        Holding(
            uuid=uuid,
            fence=fence,
            worker=worker,
            expired_us=max(0, at_us - until_us),
            attempt=None if attempt is None else _attempt.decode(attempt),
        )
        for uuid, fence, worker, until_us, attempt in connection.execute(TICKET_QUERIES["holdings"])
    ]
