"""Errors as responses: problem+json (RFC 9457) with the facts and the hint that the command line prints."""

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from joblens.model.errors import JoblensError

PROBLEM_TYPE = "application/problem+json"
_HINTS = {
    404: "the paths are listed in /api/v1/openapi.json",
    405: "the methods of each path are listed in /api/v1/openapi.json",
    413: "send less, or raise server.max_body on the server",
    415: "send JSON with content-type: application/json",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`code` is the name of the error in docs/errors.md; clients decide by it."""

    status: int
    title: str
    type: str = "about:blank"
    code: str = ""
    detail: str = ""
    hint: str = ""  # what to do
    instance: str = ""  # the path of the request
    problems: tuple[str, ...] = ()  # each mistake of a file or a body


class HttpProblem(Exception):
    """A refusal that has no counterpart on the command line."""

    def __init__(
        self, status: int, title: str, hint: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(title)
        self.problem = Problem(status=status, title=title, hint=hint)
        self.headers = headers or {}


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Returns the problem and more headers. An unexpected error does not show its text."""
    if isinstance(error, HttpProblem):
        return error.problem, error.headers
    if isinstance(error, JoblensError):
        return _of_joblens(error), {}
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        problem = Problem(
            status=400,
            type="urn:joblens:error:InputError",
            code="InputError",
            title="Invalid input.",
            detail=str(error),
            hint="the schema of every request is in /api/v1/openapi.json",
        )
        return problem, {}
    if isinstance(error, HTTPException):
        problem = Problem(
            status=error.status_code, title=str(error.detail), hint=_HINTS.get(error.status_code, "")
        )
        return problem, dict(error.headers or {})
    problem = Problem(
        status=500,
        title="The server failed.",
        hint="the server's log has the reason; report it with the time of this response",
    )
    return problem, {}


def _of_joblens(error: JoblensError) -> Problem:
    code = _public_name(type(error))
    texts: Any = getattr(error, "problems", ())
    return Problem(
        type=f"urn:joblens:error:{code}",
        status=error.http_status,
        code=code,
        title=(type(error).__doc__ or "").split("\n", 1)[0],
        detail=str(error),
        hint=error.hint,
        problems=tuple(texts) if len(texts) > 1 else (),
    )


def _public_name(kind: type[JoblensError]) -> str:
    """A private error is known by its base, as in docs/errors.md."""
    return next(each.__name__ for each in kind.__mro__ if not each.__name__.startswith("_"))


def problem_response(error: Exception, path: str) -> Response:
    problem, headers = problem_of(error)
    if problem.status == 401:
        headers = {**headers, "www-authenticate": 'Bearer realm="joblens"'}
    whole = msgspec.structs.replace(problem, instance=path)
    return Response(msgspec.json.encode(whole), problem.status, headers, media_type=PROBLEM_TYPE)
