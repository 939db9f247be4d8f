"""Access and curation: what a server asks of a store beside records. Every method may raise StoreError."""

from collections.abc import Sequence
from typing import Protocol

from joblens.model.access import ApiToken, AuditEntry, AuditQuery, IdempotentRequest
from joblens.model.history import Annotation, Tombstone
from joblens.model.sql import SqlAnswer, SqlLimits


class TokenStore(Protocol):
    def add_token(self, token: ApiToken) -> None:
        """Ignored if its id exists."""
        ...

    def tokens(self) -> list[ApiToken]:
        """Newest first, revoked and expired ones too."""
        ...

    def token_of_hash(self, digest: str) -> ApiToken | None: ...

    def token_used(self, token_id: str, at_us: int) -> None:
        """Never moves the time back."""
        ...

    def revoke_token(self, token_id: str, at_us: int) -> bool:
        """False: there is no such token, or it was revoked before."""
        ...

    def expire_token(self, token_id: str, at_us: int) -> bool:
        """Sets the time after which it is refused. False: there is no such token, or it was revoked."""
        ...


class AuditLog(Protocol):
    """Entries are written with `apply([AuditNoted(entry)])`, together with the change they are about."""

    def audit_entries(self, query: AuditQuery) -> list[AuditEntry]: ...


class IdempotencyKeys(Protocol):
    def remember_request(self, request: IdempotentRequest) -> IdempotentRequest:
        """Stores it, unless the user has one under that key that has not expired at `request.at_us`.
        Returns the one that is stored now: of several at once, all get the same. Removes expired ones."""
        ...

    def find_request(self, user: str, key: str, now_us: int) -> IdempotentRequest | None: ...


class JobCuration(Protocol):
    """Changes of jobs by people. Notes are written with `apply([JobAnnotated(annotation)])`."""

    def change_tags(self, uuids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Returns the uuids of jobs whose tags changed; unknown jobs are skipped."""
        ...

    def delete_jobs(self, uuids: Sequence[str], *, by: str, at_us: int) -> list[Tombstone]:
        """Removes records, samples, details, notes and tags of jobs that have ended, corrects the statistics,
        leaves tombstones and writes audit entries; unknown and unfinished jobs are skipped. Also removes
        environments (provenance) that no other job names."""
        ...

    def delete_workflow(self, uuid: str) -> bool:
        """Removes a workflow with its runs and their events. False: it still has jobs, nothing is done."""
        ...

    def annotations(self, uuid: str) -> list[Annotation]:
        """Of a job, oldest first."""
        ...

    def tombstones(self, idents: Sequence[str]) -> list[Tombstone]:
        """Of deleted jobs, by uuid, number or own id; newest deletion first."""
        ...


class SqlQueries(Protocol):
    def sql(self, text: str, limits: SqlLimits, *, only_user: str | None = None) -> SqlAnswer:
        """One query over the views of model.sql; nothing else can be read, and nothing changed. `only_user`:
        sees that user's rows. Raises InputError for text that is no such query, or that takes too long."""
        ...


class ServerStore(TokenStore, AuditLog, IdempotencyKeys, JobCuration, SqlQueries, Protocol):
    """Everything a server asks beside records; every driver provides it."""
