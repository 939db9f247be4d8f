"""Callers, from the token in a call's metadata or the client's certificate; and errors as statuses."""

import logging
from collections.abc import Mapping
from typing import Any

import grpc
from msgspec import Struct

from joblens.app.server.access import Principal
from joblens.model.access import Role, Scope
from joblens.model.errors import InputError, JoblensError, SignInRequired
from joblens.web.endpoints import ServerContext
from joblens.web.guard import Rates, take_forwarded
from joblens.web.problems import HttpProblem, problem_of
from joblens.web.rpc.conversion import to_message
from joblens.web.rpc.schema import Schema

LOG = logging.getLogger("joblens.server")
PROBLEM_KEY = "joblens-problem-bin"
_LONGEST_TEXT = 500  # bytes; clients accept 8 kB of metadata
_CERTIFICATE_NAMES = ("x509_common_name", "x509_subject_alternative_name")

# The status of HTTP for the same error -> the one of gRPC.
STATUSES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class CertificateRole(Struct, frozen=True, kw_only=True):
    """Rights of a client certificate by its name."""

    name: str
    role: Role
    user: str = ""  # only this user's jobs; '': all

    @property
    def principal(self) -> Principal:
        return Principal(
            name=self.name,
            user=self.user or self.name,
            role=self.role,
            scope=Scope.OWN if self.user else Scope.ALL,
            is_certificate=True,
        )


def parse_certificate_roles(text: str) -> tuple[CertificateRole, ...]:
    """Reads NAME=ROLE or NAME=ROLE:USER, separated by commas. Raises InputError."""
    found: list[CertificateRole] = []
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name, _, rights = entry.rpartition("=")
        role, colon, user = rights.partition(":")
        if not name or role not in tuple(Role) or bool(colon) != bool(user):
            raise InputError(
                f"server.grpc_roles: '{entry[:100]}' is not NAME=ROLE or NAME=ROLE:USER",
                hint=f"roles: {', '.join(Role)}; for example ci.example.org=operator, ana=reader:ana",
            )
        if name in {each.name for each in found}:
            raise InputError(f"server.grpc_roles: {name} has two roles", hint="give it one")
        found.append(CertificateRole(name=name, role=Role(role), user=user))
    return tuple(found)


class CallGuard:
    """Admits calls: rate per client, then token or certificate."""

    def __init__(
        self, server: ServerContext, roles: tuple[CertificateRole, ...], *, is_behind_proxy: bool
    ) -> None:
        self._auth = server.auth
        self._roles = roles
        self._is_behind_proxy = is_behind_proxy
        rate = server.settings.server.rate
        self._rates = Rates(rate, rate * 10)

    async def admit(self, call: Any, role: Role) -> Principal:
        """Raises SignInRequired, AccessDenied, or HttpProblem for too many calls."""
        scope = self._scope(call)
        self._rates.check(scope["client"][0], "too many calls", "wait; streams replace polling")
        principal = await self._principal(call, scope)
        principal.require(role)
        return principal

    async def refusal(self, call: Any) -> str:
        """Returns why a stream must end: the token was revoked or has expired; or ''."""
        try:
            await self._principal(call, self._scope(call))
        except (SignInRequired, HttpProblem):
            return "signed-out"
        except JoblensError:
            return ""  # the store is unreachable now
        return ""

    async def _principal(self, call: Any, scope: dict[str, Any]) -> Principal:
        if not any(name == b"authorization" for name, _ in scope["headers"]):
            names = _certificate_names(call.auth_context())
            for each in self._roles:
                if each.name in names:
                    return each.principal
        return (await self._auth.caller(scope)).principal

    def _scope(self, call: Any) -> dict[str, Any]:
        """Returns the facts that decide about access, as an HTTP request. No cookies: sessions are for
        browsers."""
        kinds = ("authorization", "x-forwarded-for")
        headers = [
            (name.encode(), value.encode("utf-8", "replace") if isinstance(value, str) else value)
            for name, value in call.invocation_metadata() or ()
            if name in kinds
        ]
        # ipv4:127.0.0.1:51234, ipv6:%5B::1%5D:51234
        scope: dict[str, Any] = {"headers": headers, "client": (call.peer().rpartition(":")[0], 0)}
        if self._is_behind_proxy:
            take_forwarded(scope)
        return scope


def _certificate_names(properties: Mapping[str, Any]) -> set[str]:
    """Returns common name and alternative names of a certificate that TLS has verified."""
    if properties.get("transport_security_type") != [b"ssl"]:
        return set()
    found = (value for name in _CERTIFICATE_NAMES for value in properties.get(name, ()))
    return {value.decode("utf-8", "replace") for value in found}


async def refuse(call: Any, error: Exception, schema: Schema, method: str) -> None:
    """Ends a call with status, message and hint of an error. An unexpected one shows nothing of itself."""
    if not isinstance(error, JoblensError | HttpProblem):
        LOG.error("%s failed", method, exc_info=error)
    problem, headers = problem_of(error)
    text = _clipped(problem.detail or problem.title)
    retry = headers.get("retry-after", "0")
    body = to_message(
        schema.message("Problem"),
        {
            "code": problem.code,
            "detail": text,
            "hint": _clipped(problem.hint),
            "problems": [_clipped(each) for each in problem.problems[:3]],
            "retry_after_s": int(retry),
        },
    )
    message = f"{text}\n{_clipped(problem.hint)}" if problem.hint else text
    status = STATUSES.get(problem.status, grpc.StatusCode.UNKNOWN)
    await call.abort(status, message, ((PROBLEM_KEY, body.SerializeToString()),))


def _clipped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= _LONGEST_TEXT else data[:_LONGEST_TEXT].decode("utf-8", "ignore") + "…"
