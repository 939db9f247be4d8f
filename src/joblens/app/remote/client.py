"""Client of a server, for programs that wait for its answers."""

import base64
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Struct

from joblens.analysis.numbers.downsampling import Series
from joblens.analysis.runs.table import ResultRow
from joblens.analysis.sizing.rightsizing import GroupAdvice
from joblens.model.errors import InputError
from joblens.model.history import BENCH_TAG, Annotation, HistoryQuery, SortKey, Statistics, Tombstone
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunEvent, RunStatus, Workflow
from joblens.model.sql import SqlAnswer, SqlLimits
from joblens.model.values.ids import new_uuid
from joblens.model.values.positions import Position
from joblens.model.values.units import parse_duration, parse_instant, parse_size
from joblens.stores.remote import EventStream, RemoteStore, ServerConnection, TlsFiles

_FIRST_POLL_S, _LONGEST_POLL_S = 0.1, 1.0
UNFINISHED = (RunStatus.CREATED, RunStatus.RUNNING)
_SAMPLES_AT_ONCE = 10_000
Texts = str | Sequence[str]
T = TypeVar("T")


class JobFilters(TypedDict, total=False):
    """The filters of `joblens history`. Of several values any matches; of tags all."""

    status: Texts
    name: Texts  # exact, or with * and ?
    name_contains: str
    tool: Texts
    tag: Texts
    user: str
    host: Texts
    run: str
    finding: Texts
    since: str  # a time, or an age such as 2h
    until: str
    sort: str
    ascending: bool
    limit: int


class SubmitOptions(TypedDict, total=False):
    name: str
    task_id: str  # your own id for the job
    tags: Sequence[str]
    params: Mapping[str, Any]
    env: Mapping[str, str]
    cwd: str  # on the server's machine
    cpus: float
    memory: str | int
    gpus: int
    timeout: str | float
    queue: str
    key: str


class Health(Struct, frozen=True):
    status: str
    version: str
    store_now_us: int


class Advice(Struct, frozen=True):
    groups: tuple[GroupAdvice, ...]
    jobs: int  # that it is based on


class _AdvicePage(Advice, frozen=True):
    next: int | None = None


class _RunJobs(Struct, frozen=True):
    items: list[ResultRow]
    next: int | None = None


class Client:
    """One connection to a server, opened at the first request. Threads may share it; their requests wait for
    each other.

    `url`: http://127.0.0.1:7373, https://jobs.example.org/joblens, or the path of the server's Unix socket,
    which needs no token. `ca`, `cert`, `key`: PEM files for TLS. `note` is called if the versions differ."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        ca: str = "",
        cert: str = "",
        key: str = "",
        timeout_s: float = 60.0,
        note: Callable[[str], None] | None = None,
    ) -> None:
        tls = TlsFiles(ca=ca, cert=cert, key=key)
        self._server = ServerConnection(url, token, tls=tls, note=note, answer_s=timeout_s)
        self._store = RemoteStore(self._server)

    def close(self) -> None:
        """Closes the connection; a later request opens it again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- jobs

    def jobs(self, **filters: Unpack[JobFilters]) -> Iterator[Record]:
        """Yields jobs, newest first, with the filters of `joblens history`; more are read as needed."""
        return self._store.records(self._query(filters))

    def statistics(self, **filters: Unpack[JobFilters]) -> Statistics:
        """Returns totals and percentiles of ended jobs."""
        return self._store.statistics(self._query(filters))

    def job(self, job: str | int) -> Record:
        """Returns a job by number, UUID, prefix of it, or own id. Raises UnknownJob or AmbiguousJob."""
        return self._store.find(str(job))

    def running(self) -> list[Record]:
        """Returns queued and running jobs, oldest first."""
        return self._store.running()

    def samples(self, job: str | int, after: int = -1) -> Iterator[tuple[int, Sample]]:
        """Yields (index, sample) in order, with counters as read."""
        uuid = self._uuid(job)
        while found := self._store.samples(uuid, after, _SAMPLES_AT_ONCE):
            yield from found
            after = found[-1][0]

    def series(self, job: str | int, fields: Sequence[str] = (), points: int = 1000) -> Series:
        """Returns the smallest, the largest and the last value of each field in at most `points` intervals. A
        field is a column of samples, with `/s` behind a counter its rate. Default: CPU, memory, processes."""
        query = urllib.parse.urlencode([("points", str(points)), *(("field", each) for each in fields)])
        return self._server.call("GET", f"{_job(job)}/series?{query}", Series)

    def details(self, job: str | int) -> Details:
        """Returns probes, GPUs, processes, and why a number is unknown."""
        return self._store.details(self._uuid(job))

    def provenance(self, job: str | int) -> Provenance:
        """Returns programs, packages, code, machine, inputs and outputs."""
        return self._server.call("GET", f"{_job(job)}/provenance", Provenance)

    def annotations(self, job: str | int) -> list[Annotation]:
        """Returns notes and metrics that people and jobs added, oldest first."""
        return self._store.annotations(self._uuid(job))

    def log(self, job: str | int, stream: str = "stdout", tail: int | None = None) -> bytes:
        """Returns the output so far; with `tail`, its last lines. Where the server cannot read the file,
        returns the tail in the record."""
        query = "" if tail is None else f"?tail={tail}"
        path, found = f"/api/v1{_job(job)}/logs/{_quoted(stream)}", bytearray()
        answer = self._server.request("GET", path + query)
        found += answer.body
        total = int(answer.headers.get("x-joblens-total", "0"))
        while answer.body and (position := int(answer.headers.get("x-joblens-next", "0"))) < total:
            answer = self._server.request("GET", path, headers={"range": f"bytes={position}-"})
            found += answer.body
        return bytes(found)

    def advice(self, *names: str) -> Advice:
        """Returns the resource requests that earlier jobs of these names suggest."""
        query = urllib.parse.urlencode([("name", name) for name in names])
        page = self._server.call("GET", f"/advice?{query}", _AdvicePage)
        groups, jobs = list(page.groups), page.jobs
        while page.next is not None:
            page = self._server.call("GET", f"/advice?{query}&after={page.next}", _AdvicePage)
            groups += page.groups
        return Advice(tuple(groups), jobs)

    def sql(self, text: str, *, rows: int = 10_000, seconds: float = 30.0) -> SqlAnswer:
        """Runs one SELECT over the views of docs/sql.md."""
        return self._store.sql(text, SqlLimits(seconds=seconds, rows=rows))

    def health(self) -> Health:
        """Returns the state and version of the server."""
        return self._server.call("GET", "/health", Health)

    # ---- runs

    def workflows(self) -> list[Workflow]:
        """Returns workflows, newest first."""
        return self._store.workflows()

    def runs(self, workflow: str | int) -> list[Run]:
        """Returns the runs of a workflow, oldest first."""
        return self._store.runs(self._store.find_workflow(str(workflow)).uuid)

    def run(self, run: str) -> Run:
        """Returns a run by UUID or WORKFLOW.N; a workflow's number or name means its newest run."""
        return self._store.find_run(run)

    def run_jobs(self, run: str) -> list[ResultRow]:
        """Returns every job of the run with its last attempt."""
        found: list[ResultRow] = []
        after: int | None = 0
        while after is not None:
            page = self._server.call("GET", f"{_run(run)}/jobs?limit=1000&after={after}", _RunJobs)
            found += page.items
            after = page.next
        return found

    def run_events(self, run: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        """Returns (number, event) in order, from the one after number `after`."""
        return self._store.run_events(self.run(run).uuid, after)

    # ---- streams

    def follow_samples(self, job: str | int, after: int | str = -1) -> Iterator[tuple[int, Sample]]:
        """Yields every sample, then new ones until the job ends. Reconnects by itself; nothing is lost or
        duplicated. A job that goes back to its queue starts again at index 0."""
        for event in self.stream_of_samples(job, after):
            if event.name == "sample":
                yield Position.parse(event.id).index, msgspec.json.decode(event.data, type=Sample)

    def follow_log(self, job: str | int, stream: str = "stdout") -> Iterator[bytes]:
        """Yields output from the start, then live until the job ends."""
        for event in self.stream_of_log(job, stream):
            if event.name == "log":
                yield printed(event.data)

    def follow_run(self, run: str, after: int = 0) -> Iterator[tuple[int, RunEvent]]:
        """Yields every event of a run, then new ones until it ends."""
        for event in self.stream_of_run(run, after):
            if event.name == "run-event":
                yield int(event.id), msgspec.json.decode(event.data, type=RunEvent)

    def stream_of_samples(self, job: str | int, after: int | str = -1) -> EventStream:
        """Streams raw events of samples; `close` ends the stream from another thread. `after` is an index in
        the current attempt, or the `id` of an event, which includes its attempt."""
        return EventStream(self._server, f"{_job(job)}/samples/stream", "" if after == -1 else str(after))

    def stream_of_log(self, job: str | int, stream: str = "stdout", after: str = "") -> EventStream:
        """Streams raw events of output."""
        return EventStream(self._server, f"{_job(job)}/logs/{_quoted(stream)}/stream", after)

    def stream_of_run(self, run: str, after: int = 0) -> EventStream:
        """Streams raw events of a run."""
        return EventStream(self._server, f"{_run(run)}/events/stream", str(after) if after else "")

    def wait(self, job: str | int, timeout_s: float | None = None) -> Record:
        """Returns the record once the job has ended. Raises TimeoutError."""
        uuid = self._uuid(job)
        return _polled(lambda: self._store.find(uuid), lambda record: record.status.is_final, timeout_s)

    def wait_for_run(self, run: str, timeout_s: float | None = None) -> Run:
        """Returns the run once it has ended. Raises TimeoutError."""
        uuid = self.run(run).uuid
        return _polled(
            lambda: self._store.find_run(uuid), lambda found: found.status not in UNFINISHED, timeout_s
        )

    # ---- changes

    def submit(self, command: Texts, **options: Unpack[SubmitOptions]) -> Record:
        """Runs a command in the background, as the server's user. A list is a command with its arguments, a
        string is a shell line. `key`: the same one within a day returns the first job."""
        memory, timeout = options.get("memory"), options.get("timeout")
        body = {
            "argv": () if isinstance(command, str) else tuple(command),
            "shell": command if isinstance(command, str) else None,
            "name": options.get("name", ""),
            "id": options.get("task_id"),
            "tags": tuple(options.get("tags", ())),
            "params": dict(options.get("params", {})),
            "env": dict(options.get("env", {})),
            "cwd": options.get("cwd"),
            "cpus": options.get("cpus"),
            "memory_bytes": parse_size(memory) if isinstance(memory, str) else memory,
            "gpus": options.get("gpus"),
            "timeout_s": parse_duration(timeout) if isinstance(timeout, str) else timeout,
            "queue": options.get("queue", ""),
        }
        key = {"idempotency-key": options.get("key") or new_uuid()}
        return self._server.call("POST", "/jobs", Record, body, key)

    def cancel(self, job: str | int) -> Record:
        """Requests the cancellation of a job; `wait` returns when it has ended."""
        return self._server.call("POST", f"{_job(job)}/cancel", Record)

    def rerun(self, job: str | int, env: Mapping[str, str] | None = None) -> Record:
        """Runs the command of a job again, in the background."""
        key = {"idempotency-key": new_uuid()}
        return self._server.call("POST", f"{_job(job)}/rerun", Record, {"env": dict(env or {})}, key)

    def tag(self, job: str | int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Record:
        """Adds and removes tags."""
        change = {"add": tuple(add), "remove": tuple(remove)}
        return self._server.call("POST", f"{_job(job)}/tags", Record, change)

    def annotate(self, job: str | int, text: str) -> Annotation:
        """Adds a note."""
        path = f"{_job(job)}/annotations"
        return self._server.call("POST", path, Annotation, {"text": text}, is_repeatable=False)

    def delete(self, job: str | int) -> Tombstone:
        """Removes a job with its samples and output. This cannot be undone."""
        return self._server.call("DELETE", _job(job), Tombstone, is_repeatable=False)

    def start_run(
        self,
        workflow: Mapping[str, Any],
        *,
        cwd: str,
        output_dir: str = "output",
        parameters: Mapping[str, Any] | None = None,
    ) -> Run:
        """Starts a workflow, a dict with the keys of a file, in a directory of the server's machine."""
        body = {
            "workflow": dict(workflow),
            "cwd": cwd,
            "output_dir": output_dir,
            "parameters": dict(parameters or {}),
        }
        return self._server.call("POST", "/runs", Run, body, is_repeatable=False)

    def cancel_run(self, run: str) -> Run:
        """Requests the cancellation of a run; `wait_for_run` returns when it has ended."""
        return self._server.call("POST", f"{_run(run)}/cancel", Run)

    def resume_run(self, run: str) -> Run:
        """Continues a stopped or killed run."""
        return self._server.call("POST", f"{_run(run)}/resume", Run, is_repeatable=False)

    def rerun_run(self, run: str, *, failed: bool = False, only: Sequence[str] = ()) -> Run:
        """Runs failed or selected jobs of a run again, with their dependents."""
        body = {"failed": failed, "only": tuple(only)}
        return self._server.call("POST", f"{_run(run)}/rerun", Run, body, is_repeatable=False)

    # ----

    def _uuid(self, job: str | int) -> str:
        return self.job(job).job.uuid

    def _query(self, filters: JobFilters) -> HistoryQuery:
        now_us = time.time_ns() // 1000
        tags, run = _texts(filters.get("tag", ())), filters.get("run")
        since, until = filters.get("since"), filters.get("until")
        return HistoryQuery(
            statuses=tuple(map(_status, _texts(filters.get("status", ())))),
            names=_texts(filters.get("name", ())),
            name_contains=filters.get("name_contains", ""),
            tools=_texts(filters.get("tool", ())),
            tags=tags,
            without_tag="" if BENCH_TAG in tags else BENCH_TAG,
            user=filters.get("user"),
            hosts=_texts(filters.get("host", ())),
            run_uuid=None if run is None else self.run(run).uuid,
            findings=_texts(filters.get("finding", ())),
            since_us=None if since is None else parse_instant(since, now_us),
            until_us=None if until is None else parse_instant(until, now_us),
            sort=_sort(filters.get("sort", "started")),
            ascending=filters.get("ascending", False),
            limit=filters.get("limit"),
        )


def _texts(values: Texts) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        known = ", ".join(each.value for each in Status)
        raise InputError(f"there is no status '{text}'", hint=f"values: {known}") from None


def _sort(text: str) -> SortKey:
    try:
        return SortKey(text)
    except ValueError:
        known = ", ".join(each.value for each in SortKey)
        raise InputError(f"jobs cannot be sorted by '{text}'", hint=f"values: {known}") from None


def _job(job: str | int) -> str:
    return f"/jobs/{_quoted(str(job))}"


def _run(run: str) -> str:
    return f"/runs/{_quoted(run)}"


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def printed(data: str) -> bytes:
    form = msgspec.json.decode(data)
    return base64.b64decode(form["base64"]) if "base64" in form else str(form["text"]).encode()


def _polled(read: Callable[[], T], is_over: Callable[[T], bool], timeout_s: float | None) -> T:
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s = _FIRST_POLL_S
    while not is_over(found := read()):
        if until_s is not None and time.monotonic() >= until_s:
            raise TimeoutError(f"not ended within {timeout_s:g}s")
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)
    return found
