"""Access to a server: tokens with roles, the audit log, and requests that may be repeated."""

import enum
from typing import Any

from msgspec import Struct, field


class Role(enum.StrEnum):
    READER = "reader"  # reads
    OPERATOR = "operator"  # also submits, cancels, reruns, tags and annotates
    ADMIN = "admin"  # also deletes, and manages tokens


class Scope(enum.StrEnum):
    OWN = "own"  # jobs of the token's user
    ALL = "all"


class ApiToken(Struct, frozen=True, kw_only=True):
    """A token as the store knows it: the secret itself is shown once and never stored."""

    id: str
    name: str
    hash: str  # SHA-256 of the secret, in hexadecimal
    user: str  # of the store; requests act as this user
    role: Role
    scope: Scope
    created_at_us: int
    expires_at_us: int | None = None
    used_at_us: int | None = None
    revoked_at_us: int | None = None

    def is_valid(self, now_us: int) -> bool:
        return self.revoked_at_us is None and (self.expires_at_us is None or now_us < self.expires_at_us)


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change that a user made. `uuid` identifies it: an entry written twice is stored once."""

    uuid: str
    at_us: int
    who: str
    action: str  # job-delete, job-tag, token-create, …
    subject: str  # uuid of a job or a run, id of a token
    details: dict[str, Any] = field(default_factory=dict)
    number: int = 0  # given by the store, in order of arrival


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Newest first."""

    limit: int = 100
    before: int | None = None  # entries with a lower number
    who: str | None = None
    action: str | None = None
    subject: str | None = None
    since_us: int | None = None


class IdempotentRequest(Struct, frozen=True, kw_only=True):
    """A request with an idempotency key: a repeated request gets the job of the first one."""

    user: str
    key: str
    digest: str  # of the request; the same key with another digest is an error of the sender
    job_uuid: str
    at_us: int
    expires_at_us: int
