"""Access: identities, roles, visible jobs, and the audit log of changes."""

import contextlib
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.wiring.agent_context import current_user
from joblens.model.access import ApiToken, AuditEntry, Role, Scope
from joblens.model.errors import (
    AccessDenied,
    AmbiguousJob,
    AmbiguousRun,
    InputError,
    JoblensError,
    SignInRequired,
    UnknownJob,
    UnknownRun,
    UnknownToken,
    UnknownWorkflow,
)
from joblens.model.history import HistoryQuery
from joblens.model.values.ids import new_uuid
from joblens.model.writes import AuditNoted
from joblens.ports.store import QueueStore, Store

K = TypeVar("K")
T = TypeVar("T")
_MOST_USERS = 100  # of one cache
_PREFIX = "jl_"  # makes a leaked token recognizable to scanners
_RANKS = {Role.READER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_LONGEST_NAME = 100
_USE_NOTED_US = 60_000_000


class Principal(Struct, frozen=True, kw_only=True):
    """Acting identity: the owner of the server, a token, or a client certificate with a role."""

    name: str
    user: str  # of the store
    role: Role
    scope: Scope
    token_id: str = ""
    is_certificate: bool = False

    def require(self, role: Role) -> None:
        """Raises AccessDenied."""
        if _RANKS[self.role] < _RANKS[role]:
            raise AccessDenied(
                f"{self.name} has the role {self.role}; this needs the role {role}",
                hint=f"ask for a token with that role: joblens token create --role {role}",
            )

    def require_all(self, what: str) -> None:
        """Raises AccessDenied for callers that see only own jobs: a token could otherwise create one that
        sees everything."""
        if self.scope is not Scope.ALL:
            raise AccessDenied(f"{what} are about jobs of all users", hint="use a token with the scope 'all'")

    def may_see_user(self, user: str) -> bool:
        return self.scope is Scope.ALL or user == self.user

    @property
    def only_user(self) -> str | None:
        """Returns the user whose jobs alone it may see; None: all jobs."""
        return None if self.scope is Scope.ALL else self.user

    def find(self, find: Callable[[], T], user_of: Callable[[T], str], unknown: JoblensError) -> T:
        """Raises `unknown` for missing records and for records of others, which the error of the store may
        list."""
        if self.scope is Scope.ALL:
            return find()
        try:
            found = find()
        except (UnknownJob, AmbiguousJob, UnknownRun, AmbiguousRun, UnknownWorkflow) as error:
            raise unknown from error
        if not self.may_see_user(user_of(found)):
            raise unknown
        return found

    def visible(self, query: HistoryQuery) -> HistoryQuery:
        """Returns the query without jobs of others, where those are hidden."""
        if self.scope is Scope.ALL:
            return query
        if query.user not in (None, self.user):
            raise AccessDenied(
                f"{self.name} may only see jobs of {self.user}",
                hint="omit the user, or ask for a token with the scope 'all'",
            )
        return replace(query, user=self.user)

    def unknown_job(self, ident: str) -> UnknownJob:
        """Returns the one answer for jobs that do not exist and jobs of other users: whether one exists is
        not shown either."""
        return UnknownJob(
            f"no job of {self.user} has the ID '{ident[:80]}', or several have it", hint="use the whole UUID"
        )

    def unknown_run(self, ident: str) -> UnknownRun:
        return UnknownRun(
            f"no run of {self.user} has the ID '{ident[:80]}', or several have it", hint="use the whole UUID"
        )

    @property
    def audit_name(self) -> str:
        """Returns the name for the audit log."""
        if self.is_certificate:
            return f"{self.user} (certificate {self.name})"
        return f"{self.user} (token {self.name})" if self.token_id else self.user


class TimedCache(Generic[K, T]):
    """Answers by user, each for `age_s`. Thread-safe: the same question is answered once."""

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._lock = threading.Lock()
        self._answers: dict[K, tuple[float, T]] = {}

    def get(self, key: K, answer: Callable[[], T]) -> T:
        with self._lock:
            known = self._answers.get(key)
            if known is not None and time.monotonic() - known[0] < self._age_s:
                return known[1]
            value = answer()
            if len(self._answers) >= _MOST_USERS:
                self._answers.clear()
            self._answers[key] = (time.monotonic(), value)
            return value


def local_owner() -> Principal:
    """Returns the user of a command on the store itself, whose file or database decides about access."""
    user = current_user()
    return Principal(name=user, user=user, role=Role.ADMIN, scope=Scope.ALL)


class NewToken(Struct, frozen=True, kw_only=True):
    """A token that was created now; the only moment in which its secret is known."""

    secret: str
    token: ApiToken


def principal_of(token: ApiToken) -> Principal:
    return Principal(name=token.name, user=token.user, role=token.role, scope=token.scope, token_id=token.id)


def create_token(
    store: QueueStore,
    caller: Principal,
    *,
    name: str,
    user: str,
    role: Role,
    scope: Scope,
    lifetime_s: float | None,
) -> NewToken:
    _check_administers(caller)
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InputError(f"a token needs a printable name of at most {_LONGEST_NAME} characters")
    if not user.strip():
        raise InputError("a token needs the name of a user", hint="--user NAME")
    now_us = _now_us()
    if lifetime_s is not None and not 1.0 <= lifetime_s < 1e10:
        raise InputError("a token lives for at least one second", hint="for example --expires 30d")
    expires_us = None if lifetime_s is None else now_us + round(lifetime_s * 1e6)
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        id=new_uuid().replace("-", "")[:12],
        name=name,
        hash=digest_of(secret),
        user=user,
        role=role,
        scope=scope,
        created_at_us=now_us,
        expires_at_us=expires_us,
    )
    store.add_token(token)
    audit(store, caller, "token-create", token.id, {"name": name, "user": user, "role": role, "scope": scope})
    return NewToken(secret=secret, token=token)


def rotate_token(store: QueueStore, caller: Principal, ident: str, overlap_s: float) -> NewToken:
    """Creates a token with the same rights; the old one works for `overlap_s` more."""
    _check_administers(caller)
    now_us = _now_us()
    old = find_token(store, ident)
    if not old.is_valid(now_us):
        raise InputError(f"token {old.id} has expired or was revoked", hint="joblens token create")
    lifetime_s = None if old.expires_at_us is None else (old.expires_at_us - old.created_at_us) / 1e6
    new = create_token(
        store, caller, name=old.name, user=old.user, role=old.role, scope=old.scope, lifetime_s=lifetime_s
    )
    end_us = now_us + round(max(overlap_s, 0.0) * 1e6)
    if old.expires_at_us is None or old.expires_at_us > end_us:
        store.expire_token(old.id, end_us)
    audit(store, caller, "token-rotate", old.id, {"new": new.token.id})
    return new


def revoke_token(store: QueueStore, caller: Principal, ident: str) -> ApiToken:
    _check_administers(caller)
    token = find_token(store, ident)
    if store.revoke_token(token.id, _now_us()):
        audit(store, caller, "token-revoke", token.id, {"name": token.name})
    return find_token(store, token.id)


def _check_administers(caller: Principal) -> None:
    caller.require(Role.ADMIN)
    caller.require_all("tokens")


def find_token(store: QueueStore, ident: str) -> ApiToken:
    """By id, unique prefix of it, or name that only one valid token has."""
    tokens, now_us = store.tokens(), _now_us()
    exact = [each for each in tokens if each.id == ident]
    found = (
        exact
        or [each for each in tokens if each.name == ident and each.is_valid(now_us)]
        or [each for each in tokens if len(ident) >= 4 and each.id.startswith(ident)]
    )
    if not found:
        raise UnknownToken(f"no token has the ID '{ident}'", hint="joblens token list")
    if len(found) > 1:
        names = ", ".join(each.id for each in found[:5])
        raise UnknownToken(f"'{ident}' stands for {len(found)} tokens: {names}", hint="use the ID")
    return found[0]


def check_secret(store: QueueStore, secret: str) -> ApiToken:
    """Returns the valid token with this secret. Raises SignInRequired."""
    return check_digest(store, digest_of(secret))


def check_digest(store: QueueStore, digest: str) -> ApiToken:
    token = store.token_of_hash(digest)
    # The digest of 256 random bits is no secret to be guessed byte by byte; comparing it in constant time
    # keeps that independent of how a store compares.
    if token is None or not hmac.compare_digest(token.hash, digest):
        raise SignInRequired("the token is not known here", hint="joblens token list; joblens token create")
    if not token.is_valid(_now_us()):
        state = "was revoked" if token.revoked_at_us is not None else "has expired"
        raise SignInRequired(f"token {token.id} {state}", hint="ask for a new one: joblens token create")
    _note_use(store, token)
    return token


def _note_use(store: QueueStore, token: ApiToken) -> None:
    """Now and then: a write per request would cost more than the request."""
    now_us = _now_us()
    if token.used_at_us is None or now_us - token.used_at_us >= _USE_NOTED_US:
        with contextlib.suppress(JoblensError):  # a store that can only be read answers all the same
            store.token_used(token.id, now_us)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def audit(
    store: Store, caller: Principal, action: str, subject: str, details: Mapping[str, Any] | None = None
) -> None:
    """Notes a change that was made."""
    entry = AuditEntry(
        uuid=new_uuid(),
        at_us=_now_us(),
        who=caller.audit_name,
        action=action,
        subject=subject,
        details=dict(details or {}),
    )
    store.apply([AuditNoted(entry)])


def _now_us() -> int:
    return time.time_ns() // 1000
