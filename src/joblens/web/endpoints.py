"""Endpoints as values: method, path, parameters, body, result and role. Routing, decoding, access checks,
ETags and the OpenAPI document all come from the same table."""

import enum
import functools
import hashlib
import logging
import types
import typing
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from joblens.app.server.access import Principal
from joblens.app.server.live import LiveJobs
from joblens.app.server.nodes import HostHistory
from joblens.app.server.overview import DayCounts
from joblens.app.server.recipe_views import RecipeViews
from joblens.app.server.run_lists import RunLists
from joblens.app.server.run_views import RunViews
from joblens.model.access import Role
from joblens.model.errors import InputError, JoblensError
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore
from joblens.web.auth import Authenticator, Caller, Session
from joblens.web.problems import HttpProblem, problem_response
from joblens.web.store_threads import StoreThreads

LOG = logging.getLogger("joblens.server")
API = "/api/v1"
LONGEST_OF_PATH = 200  # characters of a parameter in a path
_LONGEST_PARAMETER = 4096
_SCHEMA = "the parameters of every path are in /api/v1/openapi.json"


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ServerContext(Struct, kw_only=True):
    """Everything that handlers share."""

    settings: Settings
    config: str | None
    stores: StoreThreads
    slow_stores: StoreThreads  # for questions that may take seconds: others never wait for them
    query_stores: StoreThreads  # for SQL of clients, which may take as long as it is allowed to
    auth: Authenticator
    warn: Callable[[str], None]
    base_path: str = ""
    live: LiveJobs = field(default_factory=LiveJobs)
    days: DayCounts = field(default_factory=DayCounts)
    hosts: HostHistory = field(default_factory=HostHistory)
    runs: RunViews = field(default_factory=RunViews)
    run_lists: RunLists = field(default_factory=RunLists)
    recipes: RecipeViews = field(default_factory=RecipeViews)


class Call(Struct, kw_only=True):
    """One request, decoded and allowed."""

    store: QueueStore
    principal: Principal
    server: ServerContext
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    session: Session | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """A result with headers or a status of its own."""

    value: Any
    status: int = 0  # 0: that of the endpoint
    headers: dict[str, str] = {}


class Endpoint(Struct, frozen=True):
    route: str  # method and path below API: GET /jobs/{job}
    name: str  # operationId
    summary: str
    answer: Callable[[Call], Any]  # runs on a store thread
    returns: Any
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    headers: dict[str, str] = {}  # that clients may send: name -> meaning
    role: Role = Role.READER
    is_slow: bool = False  # may take seconds
    is_query: bool = False  # SQL of the client
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses with the same result
    section: str = "jobs"
    check: Callable[[Mapping[str, str]], None] | None = None  # of the headers, before the body is decoded

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]


def with_query(answer: Callable[[QueueStore, Principal, Any], Any]) -> Callable[[Call], Any]:
    return lambda call: answer(call.store, call.principal, call.query)


def of_path(name: str, answer: Callable[[QueueStore, Principal, str], Any]) -> Callable[[Call], Any]:
    """Passes on the parameter `name` of the path."""
    return lambda call: answer(call.store, call.principal, call.path[name])


def of_path_with_query(
    name: str, answer: Callable[[QueueStore, Principal, str, Any], Any]
) -> Callable[[Call], Any]:
    return lambda call: answer(call.store, call.principal, call.path[name], call.query)


def routes_of(endpoints: Sequence[Endpoint], server: ServerContext) -> list[Route]:
    """Returns one route per path, so that a wrong method is answered with all that the path has."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [_route(path, methods, server) for path, methods in paths.items()]


def _route(path: str, methods: Mapping[str, Endpoint], server: ServerContext) -> Route:
    async def respond(request: Request) -> Response:
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD
        try:
            return await _respond(endpoint, server, request)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - the last line of defence: no traceback leaves the server
            return failed(error, request)

    return Route(API + path, respond, methods=list(methods))


def failed(error: Exception, request: Request) -> Response:
    known = isinstance(error, JoblensError | HttpProblem | msgspec.MsgspecError)
    if not known:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(error, request.url.path)


async def _respond(endpoint: Endpoint, server: ServerContext, request: Request) -> Response:
    caller = await allowed(request, server, endpoint.role)
    if endpoint.check is not None:
        endpoint.check(request.headers)
    query = decode_query(request.scope["query_string"], endpoint.query)
    path = checked_path(request)
    body = None if endpoint.body is None else decode_body(await request.body(), request, endpoint.body)

    def answer(store: QueueStore) -> tuple[bytes, Reply]:
        call = Call(
            store=store,
            principal=caller.principal,
            server=server,
            path=path,
            query=query,
            body=body,
            headers=request.headers,
            session=caller.session,
        )
        result = endpoint.answer(call)
        reply = result if isinstance(result, Reply) else Reply(value=result)
        return encode(reply.value), reply

    stores = server.slow_stores if endpoint.is_slow else server.stores
    stores = server.query_stores if endpoint.is_query else stores
    content, reply = await stores.call(answer)
    status = reply.status or endpoint.status
    if endpoint.method != "GET" or status != 200:
        return Response(content, status, reply.headers, media_type="application/json")
    return _with_etag(content, reply.headers, request)


def _with_etag(content: bytes, headers: Mapping[str, str], request: Request) -> Response:
    tag = f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    named = {**headers, "etag": tag, "cache-control": "private, no-cache", "vary": "authorization, cookie"}
    tags = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if "*" in tags or any(each.removeprefix("W/") == tag.removeprefix("W/") for each in tags):
        return Response(status_code=304, headers=named)
    return Response(content, 200, named, media_type="application/json")


async def allowed(request: Request, server: ServerContext, role: Role) -> Caller:
    """Raises SignInRequired or AccessDenied."""
    caller = await server.auth.caller(request.scope)
    caller.principal.require(role)
    return caller


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def checked_path(request: Request) -> dict[str, str]:
    found = {name: str(value) for name, value in request.path_params.items()}
    for name, value in found.items():
        check_text(name, value, LONGEST_OF_PATH)
    return found


def decode_query(query_string: bytes, kind: type[Struct]) -> Any:
    """Raises InputError that names the parameter. Unknown parameters are refused: a mistyped filter would
    return everything."""
    try:
        pairs = urllib.parse.parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, max_num_fields=200, errors="strict"
        )
    except ValueError as error:
        raise InputError(f"the query string cannot be read: {error}", hint=_SCHEMA) from error
    values: dict[str, Any] = {}
    known_types = query_types(kind)
    for name, text in pairs:
        check_text(name, text)
        if name not in known_types:
            known = ", ".join(sorted(known_types)) or "none"
            raise InputError(f"there is no parameter '{name[:40]}'", hint=f"parameters: {known}")
        value = _converted(name, text, known_types[name])
        if isinstance(value, tuple):
            values[name] = (*values.get(name, ()), *value)
        elif name in values:
            raise InputError(f"parameter '{name}' is given twice", hint="give it once")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the query: {error}", hint=_SCHEMA) from error


def _converted(name: str, text: str, kind: Any) -> Any:
    is_many = typing.get_origin(kind) is tuple
    try:
        return msgspec.convert([text] if is_many else text, kind, strict=False)
    except msgspec.ValidationError as error:
        one = typing.get_args(kind)[0] if is_many else kind
        if isinstance(one, type) and issubclass(one, enum.Enum):
            known = ", ".join(str(each.value) for each in one)
            raise InputError(
                f"parameter '{name}': there is no '{text[:40]}'", hint=f"values: {known}"
            ) from error
        raise InputError(f"parameter '{name}': {error}", hint=_SCHEMA) from error


@functools.cache
def query_types(kind: type[Struct]) -> dict[str, Any]:
    """Returns the types of parameters. Without None: a parameter that is not given is absent, and the text
    'null' is a text."""
    return {each.encode_name: _without_none(each.type) for each in msgspec.structs.fields(kind)}


def _without_none(kind: Any) -> Any:
    parts = typing.get_args(kind)
    if type(None) not in parts or typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    return typing.Union[tuple(part for part in parts if part is not type(None))]  # noqa: UP007 - parts of a type


def decode_body(raw: bytes, request: Request, kind: type[Struct]) -> Any:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HttpProblem(
            415, "the body is not declared as JSON", "send JSON with content-type: application/json"
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HttpProblem(415, "the body is encoded", "send it without content-encoding")
    if b"\\u0000" in raw:
        raise InputError("the body has a NUL character, which no store can hold")
    try:
        return msgspec.json.decode(raw, type=kind)
    except UnicodeDecodeError as error:
        raise InputError("the body is not UTF-8 text") from error
    except RecursionError as error:
        raise InputError("the body is nested too deeply") from error


def check_text(name: str, value: str, longest: int = _LONGEST_PARAMETER) -> None:
    if len(value) > longest:
        raise InputError(f"parameter '{name[:40]}' is longer than {longest} characters", hint=_SCHEMA)
    if not value.isprintable() and any(ord(each) < 32 for each in value):
        raise InputError(f"parameter '{name[:40]}' has a control character", hint=_SCHEMA)
