"""Tokens, audit log, repeated requests, notes and tags: answered alike by every store in a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from joblens.stores.sql.batch import storable

if TYPE_CHECKING:
    from joblens.model.access import ApiToken, AuditEntry, AuditQuery, IdempotentRequest
    from joblens.model.history import Annotation, Tombstone
    from joblens.stores.sql import Ask
    from joblens.stores.sql.deletion import DeletedJobs

T = TypeVar("T")


class AccessQueries:
    """ports.store.ServerStore. The types are imported on demand: running a job needs none of them."""

    def _asking_access(self) -> AbstractContextManager[Ask]:
        raise NotImplementedError

    def _change_access(self, work: Callable[[Ask], T]) -> T:
        """Calls `work` in a write transaction, again from the start when it conflicted with another."""
        raise NotImplementedError

    def add_token(self, token: ApiToken) -> None:
        row = (
            *(token.id, storable(token.name), token.hash, storable(token.user), token.role.value),
            *(token.scope.value, token.created_at_us, token.expires_at_us, token.used_at_us),
            token.revoked_at_us,
        )
        self._change_access(lambda ask: ask("add_token", *row))

    def tokens(self) -> list[ApiToken]:
        with self._asking_access() as ask:
            return [_token(row) for row in ask("tokens")]

    def token_of_hash(self, digest: str) -> ApiToken | None:
        with self._asking_access() as ask:
            return next((_token(row) for row in ask("token_of_hash", digest)), None)

    def token_used(self, token_id: str, at_us: int) -> None:
        self._change_access(lambda ask: ask("token_used", at_us, token_id))

    def revoke_token(self, token_id: str, at_us: int) -> bool:
        return bool(self._change_access(lambda ask: ask("revoke_token", at_us, token_id)))

    def expire_token(self, token_id: str, at_us: int) -> bool:
        return bool(self._change_access(lambda ask: ask("expire_token", at_us, token_id)))

    def audit_entries(self, query: AuditQuery) -> list[AuditEntry]:
        from joblens.model.access import AuditEntry

        wanted = (query.before, query.who, query.action, query.subject, query.since_us, query.limit)
        with self._asking_access() as ask:
            rows = ask("audit_entries", *wanted)
        return [
            AuditEntry(
                number=number,
                uuid=uuid,
                at_us=at_us,
                who=who,
                action=action,
                subject=subject,
                details=msgspec.json.decode(details),
            )
            for number, uuid, at_us, who, action, subject, details in rows
        ]

    def remember_request(self, request: IdempotentRequest) -> IdempotentRequest:
        row = (
            *(storable(request.user), storable(request.key), request.digest),
            *(request.job_uuid, request.at_us, request.expires_at_us),
        )

        def work(ask: Ask) -> list[tuple[Any, ...]]:
            ask("forget_requests", request.at_us)
            ask("add_request", *row)
            return ask("find_request", row[0], row[1], request.at_us)

        rows = self._change_access(work)
        return _request(rows[0]) if rows else request

    def find_request(self, user: str, key: str, now_us: int) -> IdempotentRequest | None:
        with self._asking_access() as ask:
            rows = ask("find_request", storable(user), storable(key), now_us)
        return next((_request(row) for row in rows), None)

    def change_tags(self, uuids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        def work(ask: Ask) -> list[str]:
            ask("lock_jobs_to_tag", list(uuids))
            found = ask("jobs_to_tag", list(uuids))
            return [uuid for number, uuid, job in found if _retag(ask, number, job, add, remove)]

        return self._change_access(work)

    def delete_jobs(self, uuids: Sequence[str], *, by: str, at_us: int) -> list[Tombstone]:
        from joblens.stores.sql.deletion import JOBS_AT_ONCE, unreferenced

        deleted: list[Tombstone] = []
        digests: set[str] = set()
        for start in range(0, len(uuids), JOBS_AT_ONCE):
            part = self._delete(uuids[start : start + JOBS_AT_ONCE], by, at_us)
            deleted += part.tombstones
            digests |= part.digests
        with self._asking_access() as ask:
            unused = unreferenced(ask, digests)
        if unused:
            self._change_access(lambda ask: ask("drop_provenance", unused))
        return deleted

    def _delete(self, uuids: Sequence[str], by: str, at_us: int) -> DeletedJobs:
        """Calls `deletion.delete_jobs` and corrects the statistics, in one transaction."""
        raise NotImplementedError

    def delete_workflow(self, uuid: str) -> bool:
        def work(ask: Ask) -> bool:
            [(jobs,)] = ask("jobs_of_workflow", uuid)
            if jobs:
                return False
            for query in ("unlink_tombstones", "delete_workflow_events", "delete_runs", "delete_workflow"):
                ask(query, uuid)
            return True

        return self._change_access(work)

    def annotations(self, uuid: str) -> list[Annotation]:
        from joblens.model.history import Annotation

        with self._asking_access() as ask:
            rows = ask("annotations", uuid)
        return [
            Annotation(uuid=note, job_uuid=job, at_us=at_us, author=author, text=text)
            for note, job, at_us, author, text in rows
        ]

    def tombstones(self, idents: Sequence[str]) -> list[Tombstone]:
        from joblens.stores.sql.deletion import tombstone_of

        numbers = [int(each) for each in idents if each.isascii() and each.isdigit() and len(each) < 19]
        with self._asking_access() as ask:
            rows = ask("tombstones", list(idents), numbers)
        return [tombstone_of(row) for row in rows]


def _token(row: tuple[Any, ...]) -> ApiToken:
    from joblens.model.access import ApiToken, Role, Scope

    ident, name, digest, user, role, scope, *times = row
    created, expires, used, revoked = times
    return ApiToken(
        id=ident,
        name=name,
        hash=digest,
        user=user,
        role=Role(role),
        scope=Scope(scope),
        created_at_us=created,
        expires_at_us=expires,
        used_at_us=used,
        revoked_at_us=revoked,
    )


def _request(row: tuple[Any, ...]) -> IdempotentRequest:
    from joblens.model.access import IdempotentRequest

    user, key, digest, job_uuid, at_us, expires_at_us = row
    return IdempotentRequest(
        user=user, key=key, digest=digest, job_uuid=job_uuid, at_us=at_us, expires_at_us=expires_at_us
    )


def _retag(ask: Ask, number: int, job: bytes | None, add: Sequence[str], remove: Sequence[str]) -> bool:
    """The record's own document changes too: it is what `show` and exports read. A job without
    one is not changed."""
    if job is None:
        return False
    document = msgspec.json.decode(job)
    known = list(document.get("tags", ()))
    wanted = [tag for tag in known if tag not in remove]
    wanted += [tag for tag in dict.fromkeys(add) if tag not in wanted]
    if wanted == known:
        return False
    for tag in known:
        if tag not in wanted:
            ask("delete_tag", storable(tag), number)
    for tag in wanted:
        if tag not in known:
            ask("insert_tag", storable(tag), number)
    document.pop("tags", None)
    if wanted:
        document["tags"] = wanted
    ask("set_job_detail", msgspec.json.encode(document), number)
    return True
