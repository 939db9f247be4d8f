"""Endpoints of event streams, and of output as bytes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from joblens.app.server.downloads import SampleFormat, file_chunks, log_chunks, sample_file
from joblens.app.server.jobs import get_job
from joblens.app.server.logs import LogFile, log_path, node_of, stored_tail
from joblens.app.server.runs import find_run
from joblens.app.server.streams import Event, LogSource, RunEventSource, SampleSource, Source
from joblens.model.access import Role
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
from joblens.model.values.positions import POSITION_PATTERN, Position
from joblens.ports.store import QueueStore
from joblens.web.endpoints import API, ServerContext, allowed, checked_path, decode_query, failed
from joblens.web.guard import Message, Receive, Scope, Send
from joblens.web.openapi import StreamEndpoint
from joblens.web.problems import HttpProblem
from joblens.web.streams import Hub, Notice, Step

_CHUNK = 1 << 18
_RETRY_MS = 1000
_LAST_EVENT = {"Last-Event-ID": "Id of the last event that the client has; the stream continues behind it."}


class FollowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # As Last-Event-ID, for clients without headers.
    after: Annotated[str, Meta(pattern=POSITION_PATTERN)] | None = None


class LogQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tail: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None  # only the last lines
    download: bool = False  # all of it, as a file to save


class DownloadQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: SampleFormat = SampleFormat.CSV


STREAMS = (
    StreamEndpoint(
        path="/jobs/{job}/samples/stream",
        name="streamSamples",
        summary="Every sample from the first, then live until the job ends. Events: sample, reset, end.",
        media_type="text/event-stream",
        query=FollowQuery,
        headers=_LAST_EVENT,
    ),
    StreamEndpoint(
        path="/jobs/{job}/logs/{stream}/stream",
        name="streamLog",
        summary="Output of a job, from the start, then live until it ends. Events: log, reset, end.",
        media_type="text/event-stream",
        query=FollowQuery,
        headers=_LAST_EVENT,
    ),
    StreamEndpoint(
        path="/runs/{run}/events/stream",
        name="streamRunEvents",
        summary="Every event of a run, then live until it ends. Events: run-event, reset, end.",
        media_type="text/event-stream",
        query=FollowQuery,
        headers=_LAST_EVENT,
    ),
    StreamEndpoint(
        path="/jobs/{job}/logs/{stream}",
        name="getLog",
        summary="Output of a job as bytes. Range requests work; positions count what was printed.",
        media_type="text/plain",
        query=LogQuery,
        headers={"Range": "bytes=FIRST-LAST"},
        section="logs",
        statuses=(200, 206),
    ),
    StreamEndpoint(
        path="/jobs/{job}/samples/download",
        name="downloadSamples",
        summary="All samples of a job as a file.",
        media_type="text/csv",
        query=DownloadQuery,
        section="jobs",
    ),
)


class EventStream(Response):
    """Sends the events of a generator until it ends or the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, event: str, steps: AsyncGenerator[Step, None]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._event = event.encode()
        self._steps = steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaving
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
            finally:
                await self._steps.aclose()

    async def _send_all(self, send: Send) -> None:
        retry = b"retry: %d\n\n" % _RETRY_MS
        await send({"type": "http.response.body", "body": retry, "more_body": True})
        async for step in self._steps:
            data = _encoded(self._event, step)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _encoded(name: bytes, step: Step) -> bytes:
    if isinstance(step, Notice):
        return b"event: %b\ndata: %b\n\n" % (step.name.encode(), msgspec.json.encode(step.facts))
    return b"".join(_event_text(name, each, step.attempt) for each in step.events) or b": \n\n"


def _event_text(name: bytes, event: Event, attempt: int) -> bytes:
    ident = str(Position(event.position, attempt)).encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (ident, name, event.data)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def stream_routes(context: ServerContext, hub: Hub) -> list[Route]:
    handlers = _Streams(context, hub)
    answers: dict[str, Callable[[Request], Any]] = {
        "streamSamples": handlers.samples,
        "streamLog": handlers.log,
        "streamRunEvents": handlers.run_events,
        "getLog": handlers.whole_log,
        "downloadSamples": handlers.download_samples,
    }
    return [
        Route(API + each.path, _guarded(answers[each.name]), methods=["GET"], name=each.name)
        for each in STREAMS
    ]


def _guarded(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            response: Response = await answer(request)
            return response
        except Exception as error:  # noqa: BLE001 - as every endpoint
            return failed(error, request)

    return respond


class _Streams:
    def __init__(self, context: ServerContext, hub: Hub) -> None:
        self._context = context
        self._hub = hub

    async def samples(self, request: Request) -> Response:
        record = await self._job(request)
        uuid = record.job.uuid
        return self._stream(request, f"samples {uuid}", SampleSource(uuid))

    async def log(self, request: Request) -> Response:
        record = await self._job(request)
        stream, uuid = request.path_params["stream"], record.job.uuid
        log_path(record, stream)  # refuses other names
        return self._stream(request, f"log {uuid} {stream}", LogSource(uuid, stream))

    async def run_events(self, request: Request) -> Response:
        caller = await allowed(request, self._context, Role.READER)
        ident = checked_path(request)["run"]
        run = await self._context.stores.call(lambda store: find_run(store, caller.principal, ident))
        return self._stream(request, f"run {run.uuid}", RunEventSource(run))

    async def whole_log(self, request: Request) -> Response:
        record = await self._job(request)
        query: LogQuery = decode_query(request.scope["query_string"], LogQuery)
        stream = request.path_params["stream"]
        span = request.headers.get("range", "")
        log_path(record, stream)

        def read(_store: QueueStore) -> Response:
            if query.download and (log := LogFile.open(record, stream)) is not None:
                name = f"job-{record.number}.{stream}.log"
                return _download(log_chunks(log), name, "text/plain; charset=utf-8")
            return _log_response(record, stream, span, query.tail)

        return await self._context.stores.call(read)

    async def _job(self, request: Request) -> Record:
        caller = await allowed(request, self._context, Role.READER)
        ident = checked_path(request)["job"]
        return await self._context.stores.call(lambda store: get_job(store, caller.principal, ident))

    async def download_samples(self, request: Request) -> Response:
        record = await self._job(request)
        query: DownloadQuery = decode_query(request.scope["query_string"], DownloadQuery)
        file = await self._context.slow_stores.call(lambda store: sample_file(store, record, query.format))
        name = f"job-{record.number}-samples.{query.format.value}"
        return _download(file_chunks(file), name, query.format.media_type)

    def _stream(self, request: Request, key: str, source: Source) -> Response:
        self._hub.check_capacity()
        query: FollowQuery = decode_query(request.scope["query_string"], FollowQuery)
        after = _last_event(request.headers.get("last-event-id"), query.after)
        steps = self._hub.follow(key, source, after, lambda: self._refusal(request))
        return EventStream(source.event, steps)

    async def _refusal(self, request: Request) -> str:
        """Returns why the client may not read on: its token or session has ended."""
        try:
            await self._context.auth.caller(request.scope)
        except JoblensError as error:
            return "signed-out" if error.http_status == 401 else ""
        except HttpProblem:
            return "signed-out"
        return ""


def _last_event(header: str | None, parameter: str | None) -> Position | None:
    if header is not None and header.strip():
        return Position.parse(header.strip())
    return None if parameter is None else Position.parse(parameter)


def _log_response(record: Record, stream: str, span: str, tail: int | None) -> Response:
    log_path(record, stream)
    log = LogFile.open(record, stream)
    if log is None:
        return _stored_tail(record, stream)
    with log:
        total = log.total
        first, last = (0, total - 1) if not span else _range(span, total)
        if tail is not None:
            first = max(first, log.position_of_last_lines(tail))
        data = bytearray()
        position = first
        while position <= last and len(data) < _MOST_BYTES:
            part = log.read(position, min(_CHUNK, last - position + 1))
            if part is None:
                break
            data += part.data
            position = part.end
    headers = {
        "x-joblens-start": str(first),
        "x-joblens-next": str(position),
        "x-joblens-total": str(total),
        "x-joblens-attempt": str(0 if record.attempt is None else record.attempt.number),
        "accept-ranges": "bytes",
    }
    if not span:
        return _text(bytes(data), 200, headers)
    return _text(bytes(data), 206, {**headers, "content-range": f"bytes {first}-{position - 1}/{total}"})


_MOST_BYTES = 16 << 20


def _stored_tail(record: Record, stream: str) -> Response:
    """The file is on another machine, or was deleted: the record has the last lines."""
    node = node_of(record)
    headers = {"x-joblens-source": "stored-tail"} | (
        {"x-joblens-node": node} if node.isascii() and node.isprintable() else {}
    )
    return _text(stored_tail(record, stream).encode("utf-8", "replace"), 200, headers)


def _download(chunks: Iterator[bytes], name: str, media_type: str) -> Response:
    """Sends a file in parts, read on other threads. The name has no text of the job."""
    headers = {"content-disposition": f'attachment; filename="{name}"', **_NEVER_A_PAGE}
    return StreamingResponse(chunks, 200, headers, media_type)


# Output of a job is never a page: no sniffing, no script, no frame, whatever it contains.
_NEVER_A_PAGE = {"content-security-policy": "sandbox; default-src 'none'"}


def _text(data: bytes, status: int, headers: dict[str, str]) -> Response:
    return Response(
        data,
        status,
        {**headers, **_NEVER_A_PAGE, "content-disposition": "inline"},
        media_type="text/plain; charset=utf-8",
    )


def _range(text: str, total: int) -> tuple[int, int]:
    unit, _, span = text.partition("=")
    first, dash, last = span.strip().partition("-")
    is_valid = (
        unit.strip() == "bytes" and dash and all(not each or each.isdecimal() for each in (first, last))
    )
    if not is_valid or not (first or last) or len(span) > 40:
        raise HttpProblem(416, f"range '{text[:40]}' cannot be used", "send: Range: bytes=FIRST-LAST")
    if first:
        begin, end = int(first), int(last) if last else total - 1
    else:
        begin, end = max(0, total - int(last)), total - 1
    if begin >= total or end < begin:
        raise HttpProblem(
            416,
            f"the output has {total} bytes now; the range is behind them",
            "follow it with the stream",
            {"content-range": f"bytes */{total}"},
        )
    return begin, min(end, total - 1)
