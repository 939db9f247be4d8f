"""Endpoints of access: the session, tokens, the audit log, and the server itself."""

import functools
from typing import Annotated

from msgspec import Meta, Struct, convert

import joblens
from joblens.app.server.access import (
    NewToken,
    Principal,
    create_token,
    find_token,
    revoke_token,
    rotate_token,
)
from joblens.app.server.jobs import Word
from joblens.model.access import ApiToken, AuditEntry, AuditQuery, Role, Scope
from joblens.web.auth import Session
from joblens.web.endpoints import Call, Endpoint

_LIFETIME_S = 30 * 86400.0


class ShownToken(Struct, frozen=True, kw_only=True):
    """A token without its hash."""

    id: str
    name: str
    user: str
    role: Role
    scope: Scope
    created_at_us: int
    expires_at_us: int | None
    used_at_us: int | None
    revoked_at_us: int | None


class ShownNewToken(Struct, frozen=True, kw_only=True):
    secret: str  # shown once
    token: ShownToken


class TokenPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    after: Word | None = None  # id of the last one of the page before


class Tokens(Struct, frozen=True, kw_only=True):
    items: tuple[ShownToken, ...]
    next: str | None = None  # for `after`; None: this is the end


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[\w .@-]+$")]
    user: Annotated[str, Meta(max_length=100, pattern=r"^[\w.@-]*$")] = ""  # '': the caller's
    role: Role = Role.READER
    scope: Scope = Scope.OWN
    lifetime_s: Annotated[float, Meta(ge=1, le=1e9)] | None = _LIFETIME_S  # None: never expires


class Rotation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    overlap_s: Annotated[float, Meta(ge=0, le=1e7)] = 0.0  # the old token works for so long


class AuditParameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    who: Word | None = None
    action: Word | None = None
    subject: Word | None = None


class AuditPage(Struct, frozen=True, kw_only=True):
    items: tuple[AuditEntry, ...]
    next: int | None = None  # for `before`; None: this is the end


class SessionInfo(Struct, frozen=True, kw_only=True):
    principal: Principal
    csrf: str | None  # to send as X-CSRF-Token with changes; None: the request has no session cookie
    version: str


class Version(Struct, frozen=True, kw_only=True):
    version: str
    api: str


def shown_token(token: ApiToken) -> ShownToken:
    return convert(token, ShownToken, from_attributes=True)


def _shown_new(new: NewToken) -> ShownNewToken:
    return ShownNewToken(secret=new.secret, token=shown_token(new.token))


def session_info(principal: Principal, session: Session | None) -> SessionInfo:
    csrf = None if session is None else session.csrf
    return SessionInfo(principal=principal, csrf=csrf, version=joblens.__version__)


def _session(call: Call) -> SessionInfo:
    return session_info(call.principal, call.session)


def _tokens(call: Call) -> Tokens:
    call.principal.require_all("tokens")
    query: TokenPage = call.query
    tokens = call.store.tokens()
    begin = next((index for index, each in enumerate(tokens, 1) if each.id == query.after), 0)
    page = tokens[begin : begin + query.limit]
    more = begin + len(page) < len(tokens)
    return Tokens(items=tuple(map(shown_token, page)), next=page[-1].id if more else None)


def _token(call: Call) -> ShownToken:
    call.principal.require_all("tokens")
    return shown_token(find_token(call.store, call.path["token"]))


def _create(call: Call) -> ShownNewToken:
    request: TokenRequest = call.body
    new = create_token(
        call.store,
        call.principal,
        name=request.name,
        user=request.user or call.principal.user,
        role=request.role,
        scope=request.scope,
        lifetime_s=request.lifetime_s,
    )
    return _shown_new(new)


def _rotate(call: Call) -> ShownNewToken:
    return _shown_new(rotate_token(call.store, call.principal, call.path["token"], call.body.overlap_s))


def _revoke(call: Call) -> ShownToken:
    return shown_token(revoke_token(call.store, call.principal, call.path["token"]))


def _audit(call: Call) -> AuditPage:
    call.principal.require_all("entries of the audit log")
    page: AuditParameters = call.query
    items = tuple(call.store.audit_entries(convert(page, AuditQuery, from_attributes=True)))
    return AuditPage(items=items, next=items[-1].number if len(items) == page.limit else None)


def _version(_call: Call) -> Version:
    return Version(version=joblens.__version__, api="v1")


_access = functools.partial(Endpoint, section="access")

ENDPOINTS = (
    _access(
        "GET /session",
        "getSession",
        "Who is signed in, and the CSRF token of the session.",
        _session,
        SessionInfo,
    ),
    Endpoint(
        "GET /version",
        "getVersion",
        "Version of joblens and of the API.",
        _version,
        Version,
        section="server",
    ),
    _access(
        "GET /tokens",
        "listTokens",
        "Tokens, newest first.",
        _tokens,
        Tokens,
        query=TokenPage,
        role=Role.ADMIN,
    ),
    _access(
        "POST /tokens",
        "createToken",
        "Create a token; the secret is shown once.",
        _create,
        ShownNewToken,
        body=TokenRequest,
        role=Role.ADMIN,
        status=201,
    ),
    _access("GET /tokens/{token}", "getToken", "One token.", _token, ShownToken, role=Role.ADMIN),
    _access(
        "DELETE /tokens/{token}",
        "revokeToken",
        "Revoke a token; it stops working within a second.",
        _revoke,
        ShownToken,
        role=Role.ADMIN,
    ),
    _access(
        "POST /tokens/{token}/rotate",
        "rotateToken",
        "Replace a token by a new one with the same rights.",
        _rotate,
        ShownNewToken,
        body=Rotation,
        role=Role.ADMIN,
        status=201,
    ),
    _access(
        "GET /audit",
        "listAudit",
        "Changes that were made, newest first.",
        _audit,
        AuditPage,
        query=AuditParameters,
        role=Role.ADMIN,
    ),
)
