"""Authentication: bearer tokens, sessions in cookies, one-time sign-in codes, and the owner's own socket."""

import hmac
import os
import secrets
import time
from collections.abc import Callable

from msgspec import Struct

from joblens.app.server.access import (
    Principal,
    check_digest,
    check_secret,
    digest_of,
    local_owner,
    principal_of,
)
from joblens.model.access import ApiToken
from joblens.model.errors import AccessDenied, SignInRequired, StoreError
from joblens.web.guard import LOG, Rates, Scope, is_local_socket
from joblens.web.store_threads import StoreThreads

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CODE_S = 3600.0
_TOKEN_CACHE_S = 1.0  # a token that was revoked in the store stops working after this
_CACHED = 1000
_MOST_SESSIONS = 1000
_MOST_OF_ONE = 50  # of one token: it cannot end sessions of others


class Session(Struct, kw_only=True):
    principal: Principal
    csrf: str
    token: str = ""  # the token it was opened with: revoking that ends the session
    expires_s: float


class Caller(Struct, frozen=True, kw_only=True):
    """Caller of a request: identity, and the session that proved it."""

    principal: Principal
    session: Session | None = None


class SignInCodes:
    """Codes of sign-in URLs: each works once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}  # digest -> valid until

    def create(self) -> str:
        now = self._clock()
        self._codes = {digest: until for digest, until in self._codes.items() if until > now}
        code = secrets.token_urlsafe(32)
        self._codes[digest_of(code)] = now + _CODE_S
        return code

    def take(self, code: str) -> bool:
        """Whether the code is valid; it is not a second time."""
        until = self._codes.pop(digest_of(code), None)
        return until is not None and until > self._clock()


class Sessions:
    """Sessions of browsers, in memory: they end with the server. Only digests of the cookies are kept."""

    def __init__(self, lifetime_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def open(self, principal: Principal, token: str = "") -> str:
        """Returns the value of the cookie."""
        now = self._clock()
        self._sessions = {key: each for key, each in self._sessions.items() if each.expires_s > now}
        own = [key for key, each in self._sessions.items() if each.token == token]
        for key in own[: max(0, len(own) + 1 - _MOST_OF_ONE)]:
            self._sessions.pop(key)
        while len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        cookie = secrets.token_urlsafe(32)
        self._sessions[digest_of(cookie)] = Session(
            principal=principal,
            csrf=secrets.token_urlsafe(32),
            token=token,
            expires_s=now + self._lifetime_s,
        )
        return cookie

    def find(self, cookie: str) -> Session | None:
        found = self._sessions.get(digest_of(cookie))
        return found if found is not None and found.expires_s > self._clock() else None

    def close(self, cookie: str) -> None:
        self._sessions.pop(digest_of(cookie), None)


class Authenticator:
    def __init__(self, stores: StoreThreads, *, session_s: float, is_tls: bool, is_root_path: bool) -> None:
        self._stores = stores
        self.codes = SignInCodes()
        self.sessions = Sessions(session_s)
        self._owner = local_owner()
        self._failures = Rates(per_second=0.5, burst=20)
        self._tokens: dict[str, tuple[float, ApiToken]] = {}
        self._is_tls = is_tls
        # A browser accepts the prefix only over TLS and for the whole host.
        self.cookie_name = "__Host-joblens" if is_tls and is_root_path else "joblens"

    async def caller(self, scope: Scope) -> Caller:
        """Raises SignInRequired, or AccessDenied for a change from another site."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        authorization = headers.get(b"authorization", "")
        if authorization:
            kind, _, secret = authorization.partition(" ")
            if kind.lower() != "bearer":
                raise SignInRequired(
                    "the Authorization header has no bearer token", hint="send: Authorization: Bearer TOKEN"
                )
            return Caller(principal=principal_of(await self.token(secret.strip(), scope)))
        connection = scope.get("state", {}).get("connection")
        if is_local_socket(scope):
            assert connection is not None
            if connection.peer_uid in (os.geteuid(), 0):
                return Caller(principal=self._owner)
        cookie = self.cookie_of(headers.get(b"cookie", ""))
        session = self.sessions.find(cookie) if cookie else None
        if session is None:
            raise SignInRequired(
                "the request has no valid token and no session",
                hint="open the sign-in URL that the server printed, or send: Authorization: Bearer TOKEN "
                "(joblens token create)",
            )
        if session.token:
            await self._still_valid(session)
        if scope["method"] not in _SAFE:
            _check_same_site(headers, session)
        return Caller(principal=session.principal, session=session)

    async def token(self, secret: str, scope: Scope) -> ApiToken:
        """Returns the token with this secret. Failures of one client are slowed down."""
        client = (scope.get("client") or ("local", 0))[0]
        digest = digest_of(secret)
        cached = self._tokens.get(digest)
        now = time.monotonic()
        if cached is not None and cached[0] > now and cached[1].is_valid(time.time_ns() // 1000):
            return cached[1]
        try:
            token = await self._stores.call(lambda store: check_secret(store, secret))
        except SignInRequired:
            self._tokens.pop(digest, None)
            hint = "check the token; wait as Retry-After says"
            self._failures.check(client, "too many wrong tokens", hint)
            raise
        except StoreError as error:
            raise _unasked(error) from error
        if len(self._tokens) >= _CACHED:
            self._tokens.clear()
        self._tokens[digest] = (now + _TOKEN_CACHE_S, token)
        return token

    async def _still_valid(self, session: Session) -> None:
        cached = self._tokens.get(session.token)
        now = time.monotonic()
        if cached is not None and cached[0] > now:
            return
        try:
            token = await self._stores.call(lambda store: check_digest(store, session.token))
        except SignInRequired:
            session.expires_s = 0.0
            raise
        except StoreError as error:
            raise _unasked(error) from error
        self._tokens[session.token] = (now + _TOKEN_CACHE_S, token)

    def owner_session(self) -> str:
        """Returns the cookie of a session for the holder of a sign-in code."""
        return self.sessions.open(self._owner)

    async def token_session(self, secret: str, scope: Scope) -> str:
        token = await self.token(secret, scope)
        return self.sessions.open(principal_of(token), digest_of(secret))

    def cookie_of(self, header: str) -> str:
        """http.cookies stops at the first cookie with JSON or other text in it; a browser sends those of all
        ports of a host."""
        pairs = (each.strip().partition("=") for each in header.split(";"))
        return next((value for name, _, value in pairs if name == self.cookie_name), "")

    def set_cookie(self, value: str, path: str) -> str:
        """Returns a Set-Cookie header; an empty value removes the cookie."""
        secure = "; Secure" if self._is_tls else ""
        age = "" if value else "; Max-Age=0"
        return f"{self.cookie_name}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}{age}"


def _unasked(error: StoreError) -> StoreError:
    """The caller is unknown, so the message does not name the path of the store."""
    LOG.warning("a token cannot be checked: %s", error)
    return StoreError(
        "the server cannot read its store, so it cannot check the token",
        hint="try again; the server's log has the reason",
    )


def _check_same_site(headers: dict[bytes, str], session: Session) -> None:
    """A page of another site can make a browser send a request with its cookie, but can neither read the
    CSRF token nor forge the Origin header."""
    site = headers.get(b"sec-fetch-site", "same-origin")
    token = headers.get(b"x-csrf-token", "")
    if site not in ("same-origin", "none") or not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise AccessDenied(
            "the request does not carry the session's CSRF token",
            hint="send the value of `csrf` from GET /api/v1/session in the header X-CSRF-Token",
        )
