"""Methods of the service: each decodes a request, asks the use case that HTTP asks, encodes the result."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from joblens.app.server.access import Principal
from joblens.app.server.changes import Changer, SubmitRequest
from joblens.app.server.jobs import JobList, get_job, list_summaries, summary_of
from joblens.app.server.logs import LogFile, LogPart, log_path, node_of, stored_tail
from joblens.app.server.streams import Event, LogSource, SampleSource, Source
from joblens.model.access import Role
from joblens.model.errors import InputError, SignInRequired, UnknownJob
from joblens.model.jobs.job import Record
from joblens.model.values.positions import Position
from joblens.ports.store import QueueStore
from joblens.web.endpoints import ServerContext, check_text
from joblens.web.problems import HttpProblem
from joblens.web.rpc.conversion import plain_values, to_message, to_value
from joblens.web.rpc.schema import Schema
from joblens.web.streams import Hub, Notice, Step

_CHUNK = 1 << 16
_MOST_LINES = 1_000_000


class Call(Struct, frozen=True, kw_only=True):
    """One call, decoded and allowed."""

    request: Any
    principal: Principal
    rpc: Any  # grpc.aio.ServicerContext
    refusal: Callable[[], Awaitable[str]]  # why a stream must end, or ''


class Method(Struct, frozen=True, kw_only=True):
    """`answer` returns one message; `stream` yields several."""

    role: Role = Role.READER
    answer: Callable[[Call], Awaitable[Any]] | None = None
    stream: Callable[[Call], AsyncGenerator[Any, None]] | None = None


class JobService:
    def __init__(self, server: ServerContext, hub: Hub, schema: Schema) -> None:
        self._server = server
        self._stores = server.stores
        self._hub = hub
        self._message = schema.message
        self.methods = {
            "ListJobs": Method(answer=self.list_jobs),
            "GetJob": Method(answer=self.get_job),
            "StreamJobMetrics": Method(stream=self.stream_job_metrics),
            "StreamJobLogs": Method(stream=self.stream_job_logs),
            "SubmitJob": Method(answer=self.submit_job, role=Role.OPERATOR),
            "CancelJob": Method(answer=self.cancel_job, role=Role.OPERATOR),
        }

    async def list_jobs(self, call: Call) -> Any:
        query = to_value(plain_values(call.request), JobList)
        page = await self._stores.call(lambda store: list_summaries(store, call.principal, query))
        return to_message(self._message("ListJobsResponse"), msgspec.to_builtins(page))

    async def get_job(self, call: Call) -> Any:
        return self._job(await self._record(call))

    async def submit_job(self, call: Call) -> Any:
        values = plain_values(call.request)
        key = values.pop("idempotency_key", None)
        if text := values.pop("params_json", ""):
            values["params"] = _params(text)
        request = to_value(values, SubmitRequest)
        record, is_new = await self._stores.call(
            lambda store: self._changer(store, call).submit(request, key)
        )
        return self._message("SubmitJobResponse")(job=self._job(record), is_new=is_new)

    async def cancel_job(self, call: Call) -> Any:
        ident = _ident(call.request)
        return self._job(await self._stores.call(lambda store: self._changer(store, call).cancel(ident)))

    async def stream_job_metrics(self, call: Call) -> AsyncGenerator[Any, None]:
        record = await self._record(call)
        uuid = record.job.uuid
        message = self._message("JobMetricsSample")
        steps = self._follow(call, f"samples {uuid}", SampleSource(uuid), _after(call.request))
        async with contextlib.aclosing(steps):
            async for step in steps:
                if isinstance(step, Notice):
                    yield message(reset=step.facts["reason"])
                    continue
                for event in step.events:
                    values = {"index": event.position, "attempt": step.attempt}
                    yield to_message(message, {**values, "sample": msgspec.json.decode(event.data)})

    async def stream_job_logs(self, call: Call) -> AsyncGenerator[Any, None]:
        record = await self._record(call)
        query = call.request
        stream = query.stream or "stdout"
        log_path(record, stream)  # refuses other names
        start = await self._start(record, stream, query)
        parts = (
            self._followed_log(call, record, stream, start)
            if query.follow
            else self._present_log(record, stream, start)
        )
        message = self._message("LogChunk")
        async with contextlib.aclosing(parts):
            async for part in parts:
                if isinstance(part, _Output):
                    yield message(data=part.data, position=part.end, attempt=part.attempt)
                elif part.name == "reset":
                    yield message(reset=part.facts["reason"])
                else:
                    record = await self._record(call)
                    tail = stored_tail(record, stream).encode("utf-8", "replace")
                    yield message(data=tail, is_stored_tail=True, node=node_of(record))

    async def _followed_log(
        self, call: Call, record: Record, stream: str, start: Position
    ) -> AsyncGenerator["_Output | Notice", None]:
        uuid = record.job.uuid
        steps = self._follow(call, f"log {uuid} {stream}", LogSource(uuid, stream), start)
        async with contextlib.aclosing(steps):
            async for step in steps:
                if isinstance(step, Notice):
                    yield step
                    continue
                for event in step.events:
                    yield _output(event, step.attempt)

    async def _present_log(
        self, record: Record, stream: str, start: Position
    ) -> AsyncGenerator["_Output | Notice", None]:
        attempt = 0 if record.attempt is None else record.attempt.number
        log = await self._stores.call(lambda _: LogFile.open(record, stream))
        if log is None:
            yield Notice("end", {"reason": "not-readable-here"})
            return
        with log:
            position, total = start.index, log.total
            if start.attempt and start.attempt != attempt:
                yield Notice("reset", {"reason": "job-queued-again"})
                position = 0
            while position < total:
                part = await self._read_part(log, position, min(_CHUNK, total - position))
                if part is None:
                    return
                position = part.end
                yield _Output(part.data, part.end, attempt)

    async def _read_part(self, log: LogFile, position: int, most: int) -> LogPart | None:
        reading = asyncio.ensure_future(self._stores.call(lambda _: log.read(position, most)))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait({reading})  # before the file is closed: its number would be another one's
            raise

    async def _start(self, record: Record, stream: str, query: Any) -> Position:
        after = _after(query)
        if not query.HasField("tail"):
            return Position(0) if after is None else Position(max(after.index, 0), after.attempt)
        if after is not None or not 0 <= query.tail <= _MOST_LINES:
            raise InputError(
                f"tail is a number of lines up to {_MOST_LINES:,}, without after", hint="give one of them"
            )

        def find(_: QueueStore) -> Position:
            log = LogFile.open(record, stream)
            if log is None or record.attempt is None:
                return Position(0)
            with log:
                return Position(log.position_of_last_lines(query.tail), record.attempt.number)

        return await self._stores.call(find)

    async def _follow(
        self, call: Call, key: str, source: Source, after: Position | None
    ) -> AsyncGenerator[Step, None]:
        """Yields events, resets, and the end of output that cannot be read here. Returns when the job has
        ended; raises if the client should come back."""
        self._hub.check_capacity()
        await call.rpc.send_initial_metadata(())
        steps = self._hub.follow(key, source, after, call.refusal)
        async with contextlib.aclosing(steps):
            async for step in steps:
                if (
                    not isinstance(step, Notice)
                    or step.name == "reset"
                    or step.facts["reason"] == "not-readable-here"
                ):
                    yield step
                else:
                    _check_end(step)
                    ends = (("joblens-end", step.facts["reason"]), ("joblens-status", step.facts["status"]))
                    call.rpc.set_trailing_metadata(ends)

    async def _record(self, call: Call) -> Record:
        ident = _ident(call.request)
        return await self._stores.call(lambda store: get_job(store, call.principal, ident))

    def _changer(self, store: QueueStore, call: Call) -> Changer:
        server = self._server
        return Changer(store, call.principal, server.settings, server.config, server.warn)

    def _job(self, record: Record) -> Any:
        job, outcome = record.job, record.outcome
        values: dict[str, Any] = {
            "summary": msgspec.to_builtins(summary_of(record)),
            "argv": job.argv,
            "is_shell": job.is_shell,
            "cwd": job.cwd,
            "id": job.external_id,
            "params_json": msgspec.json.encode(job.params).decode(),
            "requirements": msgspec.to_builtins(job.requirements),
            "attempt": 0 if record.attempt is None else record.attempt.number,
            "rerun_of": job.rerun_of,
        }
        if outcome is not None:
            values |= {
                "signal": outcome.signal,
                "reason": outcome.reason,
                "error": outcome.error,
                "usage": msgspec.to_builtins(outcome.usage),
                "findings": msgspec.to_builtins(outcome.findings),
                "samples": outcome.samples,
                "stdout_bytes": outcome.stdout_bytes,
                "stderr_bytes": outcome.stderr_bytes,
            }
        return to_message(self._message("Job"), values)


def _ident(request: Any) -> str:
    ident: str = plain_values(request).get("uuid", "")
    if not ident:
        raise InputError(
            "uuid is empty", hint="give a UUID or its prefix, a number, or the id given with --id"
        )
    check_text("uuid", ident)
    return ident


def _after(request: Any) -> Position | None:
    if not request.HasField("after"):
        return None
    if not -1 <= request.after < 2**62:
        raise InputError(f"after: {request.after} is not a position", hint="send the last one unchanged")
    return Position(int(request.after), int(request.attempt))


def _params(text: str) -> dict[str, Any]:
    if "\\u0000" in text:
        raise InputError("params_json has a NUL character, which no store can hold")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"params_json is not a JSON object: {error}") from error


class _Output(Struct, frozen=True):
    """A part of the output, where it ends, and the attempt that printed it."""

    data: bytes
    end: int
    attempt: int


def _output(event: Event, attempt: int) -> _Output:
    form = msgspec.json.decode(event.data)
    data = form["text"].encode() if "text" in form else base64.b64decode(form["base64"])
    return _Output(data, event.position, attempt)


def _check_end(notice: Notice) -> None:
    """Raises if the job did not end, but the stream did."""
    reason = notice.facts["reason"]
    match reason:
        case "shutdown":
            raise HttpProblem(
                503, "the server is shutting down", "call again with `after`", {"retry-after": "1"}
            )
        case "slow-reader":
            raise slow_reader()
        case "signed-out":
            raise signed_out()
        case "job-deleted" | "gone":
            raise UnknownJob("the job was deleted")
        case _:
            return


def signed_out() -> SignInRequired:
    return SignInRequired("the token was revoked or has expired", hint="call again with a valid token")


def slow_reader() -> HttpProblem:
    return HttpProblem(429, "the client reads too slowly", "call again with `after`")


async def read(rpc: Any, timeout_s: float) -> bytes:
    """Returns the request of a call. Raises HttpProblem or InputError if none arrives."""
    try:
        async with asyncio.timeout(timeout_s):
            data = await rpc.read()
    except TimeoutError as error:
        raise HttpProblem(408, f"no request arrived within {timeout_s:g}s", "send it at once") from error
    if not isinstance(data, bytes):
        raise InputError("the call has no request", hint="send one message")
    return data


async def write(rpc: Any, data: bytes, timeout_s: float) -> None:
    """Sends one message of a stream. Raises HttpProblem for a client that does not read."""
    try:
        async with asyncio.timeout(timeout_s):
            await rpc.write(data)
    except TimeoutError as error:
        raise slow_reader() from error
