"""Deletion of jobs from a store: everything about them goes, and a tombstone stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from joblens.model.access import AuditEntry
from joblens.model.history import Tombstone
from joblens.model.jobs.job import Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import AuditNoted
from joblens.stores.sql.batch import EndedJob, audit_row, storable

if TYPE_CHECKING:
    from joblens.stores.sql import Ask

Document = TypeVar("Document", bound=Struct)

JOBS_AT_ONCE = 500  # in one transaction, so that running jobs never wait long
DELETED = "job-delete"  # action in the audit log

# With the numbers of the jobs, in this order.
_BY_NUMBER = (
    "delete_samples",
    "delete_unpacked_samples",
    "delete_details",
    "delete_annotations",
    "delete_documents",
    "delete_jobs",
)


class _Described(Struct):
    tags: tuple[str, ...] = ()


class _Found(Struct):
    code: str


class _Ended(Struct):
    findings: tuple[_Found, ...] = ()


class _Started(Struct):
    provenance: str = ""


class DeletedJobs:
    """Jobs of one transaction."""

    def __init__(self) -> None:
        self.tombstones: list[Tombstone] = []
        self.sums: list[EndedJob] = []  # to take out of the statistics
        self.digests: set[str] = set()  # environments that they ran in


def delete_jobs(ask: Ask, uuids: Sequence[str], *, by: str, at_us: int) -> DeletedJobs:
    """Deletes those that have ended, inside a write transaction. The caller corrects the statistics."""
    deleted = DeletedJobs()
    ask("lock_jobs_to_delete", list(uuids))
    ask("lock_audit")
    for row in ask("jobs_to_delete", list(uuids)):
        _note(ask, deleted, row, storable(by), at_us)
    numbers = [each.number for each in deleted.tombstones]
    if numbers:
        for query in _BY_NUMBER:
            ask(query, numbers)
        ask("forget_cancels", [each.uuid for each in deleted.tombstones])
    return deleted


def _note(ask: Ask, deleted: DeletedJobs, row: tuple[Any, ...], by: str, at_us: int) -> None:
    number, uuid, external_id, name, tool, user, status, *rest = row
    began_at_us, duration_us, cpu_usec, memory_bytes, *link, job, attempt, outcome = rest
    described, started = _read(job, _Described()), _read(attempt, _Started())
    for tag in described.tags:
        ask("delete_tag", storable(tag), number)
    for code in {storable(finding.code) for finding in _read(outcome, _Ended()).findings}:
        ask("delete_finding", code, began_at_us, number)
    ask("insert_tombstone", number, uuid, external_id, name, user, status, at_us, by, *link)
    entry = AuditEntry(
        uuid=new_uuid(),
        at_us=at_us,
        who=by,
        action=DELETED,
        subject=uuid,
        details={"number": number, "name": name, "status": status, "user": user},
    )
    ask("insert_one_audit_entry", *audit_row(AuditNoted(entry)))
    deleted.tombstones.append(tombstone_of((uuid, number, external_id, name, user, status, at_us, by)))
    deleted.sums.append((tool, status, duration_us, cpu_usec, memory_bytes))
    if started.provenance:
        deleted.digests.add(started.provenance)


def tombstone_of(row: Sequence[Any]) -> Tombstone:
    uuid, number, external_id, name, user, status, at_us, by = row
    return Tombstone(
        uuid=uuid,
        number=number,
        external_id=external_id,
        name=name,
        user=user,
        status=Status(status),
        deleted_at_us=at_us,
        deleted_by=by,
    )


def _read(text: bytes | None, usual: Document) -> Document:
    """`usual` for a document that is missing or damaged."""
    try:
        return usual if text is None else msgspec.json.decode(text, type=type(usual))
    except msgspec.DecodeError:
        return usual


def unreferenced(ask: Ask, digests: Iterable[str]) -> list[str]:
    """Environments in which no job of the store ran. Reads the start of every job."""
    left = set(digests)
    if left:
        left -= {digest for (digest,) in ask("referenced_digests", sorted(left))}
    return sorted(left)
