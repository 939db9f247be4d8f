"""Requests to a server: one connection, kept open; problems become the errors that the command line knows."""

import contextlib
import gzip
import socket
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from http import client as http_client
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

import joblens
from joblens.model import errors
from joblens.model.errors import (
    IncompatibleServer,
    InputError,
    JoblensError,
    ServerUnreachable,
    SignInRequired,
)
from joblens.model.questions import API_HEADER, API_VERSION, VERSION_HEADER
from joblens.stores.remote.address import ServerAddress, TlsFiles, new_connection, parse_address

T = TypeVar("T")

API = "/api/v1"
_ANSWER_S = 60.0
_MOST_WAITS = 10  # for a server that has too many requests
_LONGEST_WAIT_S = 5.0
_HOW_TO_SIGN_IN = "set JOBLENS_TOKEN, or client.token_file to a file with it (joblens token create)"
_AWAY = (502, 503, 504)
_CHECK_THE_PATH = "check the URL and its path; behind a proxy it includes the base path"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # reasons of ssl.SSLError, by version of OpenSSL
_STALE = (http_client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Response(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class _Problem(Struct, frozen=True, kw_only=True):
    status: int = 0
    title: str = ""
    code: str = ""
    detail: str = ""
    hint: str = ""
    problems: tuple[str, ...] = ()


class ServerConnection:
    """Used by several threads, one request at a time. `note` is called once if the versions differ."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        tls: TlsFiles | None = None,
        note: Callable[[str], None] | None = None,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self.address: ServerAddress = parse_address(url)
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError("the token has characters that no token has", hint=_HOW_TO_SIGN_IN)
        self._token = token
        self._tls = tls or TlsFiles()
        self._note = note
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._open: http_client.HTTPConnection | None = None
        self._has_compared = False

    @property
    def url(self) -> str:
        return self.address.shown

    def ask(self, name: str, question: Struct, kind: type[T]) -> T:
        """Asks one question of `model.questions`."""
        return self.call("POST", f"/store/{name}", kind, question)

    def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_repeatable: bool = True,
    ) -> T:
        """Returns the decoded answer. `is_repeatable`: sending it twice does nothing more, so it is sent
        again over a new connection where the server closed the old one."""
        data = None if body is None else msgspec.json.encode(body)
        named = {} if data is None else {"content-type": "application/json"}
        answer = self.request(
            method, API + path, data, {**named, **(headers or {})}, is_repeatable=is_repeatable
        )
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise IncompatibleServer(
                f"the answer of {self.url} to {path} cannot be read: {error}", hint=self._versions_of(answer)
            ) from error

    def request(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_repeatable: bool = True,
        also: Collection[int] = (),
    ) -> Response:
        """Returns an answer below 300, or with a status of `also`. Raises the error of a problem,
        ServerUnreachable or SignInRequired."""
        waits = 0
        while True:
            with self._lock:
                answer = self._exchange(method, path, data, dict(headers or {}), is_repeatable=is_repeatable)
            if answer.status != 429 or waits == _MOST_WAITS:
                break
            waits += 1
            time.sleep(_wait_s(answer))
        self._compare_versions(answer)
        if answer.status >= 300 and answer.status not in also:
            raise self._error_of(answer, path)
        return answer

    def lines(
        self, path: str, headers: Mapping[str, str], opened: Callable[[socket.socket], None]
    ) -> Generator[bytes, None, None]:
        """Yields lines of an event stream as they arrive, over a connection of its own, which `opened` gets.
        Raises ServerUnreachable when it breaks."""
        connection = new_connection(self.address, self._tls, self._answer_s)
        with contextlib.closing(connection), self._reporting():
            connection.request("GET", self._path(API + path), headers=self._headers(dict(headers)))
            opened(connection.sock)
            with contextlib.closing(connection.getresponse()) as response:
                if response.status != 200:
                    error = self._error_of(_read(response), API + path)
                    # Nothing is wrong with the question: the reader comes back.
                    raise ServerUnreachable(str(error)) if response.status == 429 else error
                while line := response.readline():
                    yield line

    def close(self) -> None:
        with self._lock:
            self._drop()

    # ---- one exchange

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], *, is_repeatable: bool
    ) -> Response:
        was_open = self._open is not None
        with self._reporting():
            try:
                return self._send(method, path, data, headers)
            except _STALE:
                self._drop()
                if not (was_open and is_repeatable):
                    raise
            return self._send(method, path, data, headers)  # it was closed since the last request

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Response:
        if self._open is None:
            self._open = new_connection(self.address, self._tls, self._answer_s)
        try:
            self._open.request(method, self._path(path), data, self._headers(headers))
            answer = self._open.getresponse()
            found = _read(answer)
        except BaseException:
            self._drop()  # half an answer may follow
            raise
        if answer.will_close:
            self._drop()
        return found

    def _path(self, path: str) -> str:
        return self.address.base_path + path

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        sent = {"user-agent": f"joblens/{joblens.__version__}", API_HEADER: str(API_VERSION), **headers}
        if not self.address.is_local:
            sent.setdefault("accept-encoding", "gzip")
        if self._token:
            sent["authorization"] = f"Bearer {self._token}"
        return sent

    def _drop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turns failures of the network into errors that say what to do."""
        try:
            yield
        except JoblensError:
            raise
        except TimeoutError as error:
            raise ServerUnreachable(f"the server {self.url} did not answer in time") from error
        except (OSError, http_client.HTTPException) as error:
            raise ServerUnreachable(
                f"the server {self.url} cannot be reached: {_reason(error)}", hint=self._how_to_reach(error)
            ) from error

    def _how_to_reach(self, error: Exception) -> str:
        if type(error).__name__ == "SSLCertVerificationError":
            return "set client.ca to the certificate of its authority"
        if self.address.scheme == "https" and not self._tls.cert and isinstance(error, _STALE):
            return "it may require a certificate of its clients: set client.cert and client.key"
        if _is_plain_http(error):
            return "use http:// with a loopback address, or the port that has TLS"
        if self.address.scheme == "unix":
            return "start it with joblens serve, which prints the path of its socket"
        return "check the URL; joblens serve starts a server"

    # ---- answers that are errors

    def _error_of(self, answer: Response, path: str) -> JoblensError:
        try:
            problem = msgspec.json.decode(answer.body, type=_Problem)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            problem = None
        if problem is None or not problem.status:
            if answer.status in _AWAY:
                return ServerUnreachable(
                    f"the server {self.url} cannot be reached: its proxy answered {answer.status}",
                    hint="try again when it has started",
                )
            return InputError(
                f"{self.url} answered {answer.status}, and is not a joblens server",
                hint=_CHECK_THE_PATH,
            )
        if answer.status == 404 and not problem.code and path.startswith(API):
            theirs = answer.headers.get(VERSION_HEADER) or self._version()
            if not theirs:
                return InputError(f"there is no joblens server at {self.url}", hint=_CHECK_THE_PATH)
            return IncompatibleServer(f"the server {self.url} has no {path}", hint=_versions(theirs))
        kind: Any = getattr(errors, problem.code, None) if problem.code.isidentifier() else None
        message = problem.detail or problem.title
        if answer.status == 401:
            return SignInRequired(message, hint=problem.hint if self._token else _HOW_TO_SIGN_IN)
        if not (isinstance(kind, type) and issubclass(kind, JoblensError)):
            kind = ServerUnreachable if answer.status in _AWAY else _refused_as(answer.status)
            message = f"the server {self.url} answered {answer.status}: {message}"
        return _made(kind, message, problem)

    def _versions_of(self, answer: Response) -> str:
        return _versions(answer.headers.get(VERSION_HEADER) or self._version())

    def _version(self) -> str:
        """Returns the version of a server that does not name it by itself; '': unknown."""
        with self._lock, contextlib.suppress(JoblensError, msgspec.MsgspecError):
            answer = self._exchange("GET", f"{API}/version", None, {}, is_repeatable=True)
            return str(msgspec.json.decode(answer.body, type=dict[str, Any]).get("version", ""))
        return ""

    def _compare_versions(self, answer: Response) -> None:
        theirs, api = answer.headers.get(VERSION_HEADER), answer.headers.get(API_HEADER)
        if theirs is None or self._has_compared:
            return
        self._has_compared = True
        if api != str(API_VERSION):
            raise IncompatibleServer(
                f"the server {self.url} answers questions of version {api}, this joblens asks those of "
                f"version {API_VERSION}",
                hint=self._versions_of(answer),
            )
        if theirs != joblens.__version__ and self._note is not None:
            self._note(f"the server {self.url} has joblens {theirs}, this is {joblens.__version__}")


def _made(kind: type[JoblensError], message: str, problem: _Problem) -> JoblensError:
    try:
        error = kind(message, hint=problem.hint)
    except TypeError:  # an error that is made from other values
        return InputError(message, hint=problem.hint)
    if problem.problems and hasattr(error, "problems"):
        error.problems = problem.problems
    return error


def _refused_as(status: int) -> type[JoblensError]:
    return JoblensError if status >= 500 else InputError


def _read(response: http_client.HTTPResponse) -> Response:
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = response.read()
    if headers.get("content-encoding") == "gzip":
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise http_client.HTTPException(f"its answer cannot be decompressed: {error}") from error
    return Response(response.status, headers, body)


def _wait_s(answer: Response) -> float:
    given = answer.headers.get("retry-after", "")
    return min(_LONGEST_WAIT_S, max(0.1, float(given) if given.isdecimal() else 1.0))


def _versions(theirs: str) -> str:
    return f"it has joblens {theirs or 'of an unknown version'}, this is {joblens.__version__}: use the same"


def _is_plain_http(error: Exception) -> bool:
    return getattr(error, "reason", "") in _NOT_TLS


def _reason(error: Exception) -> str:
    if _is_plain_http(error):
        return "it answers without TLS"
    if isinstance(error, socket.gaierror):
        return "its name is unknown"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
