"""Client of a server, for asyncio: the blocking client on a few threads, each with its own connection.

The standard library has no asynchronous HTTP client, and a library would be one more dependency for programs
that only ask. Streams have threads of their own."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import msgspec

from joblens.analysis.numbers.downsampling import Series
from joblens.analysis.runs.table import ResultRow
from joblens.app.remote.client import (
    UNFINISHED,
    Advice,
    Client,
    Health,
    JobFilters,
    SubmitOptions,
    Texts,
    printed,
)
from joblens.model.history import Annotation, Statistics, Tombstone
from joblens.model.jobs.details import Details, Provenance
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.model.runs.run import Run, RunEvent, Workflow
from joblens.model.sql import SqlAnswer
from joblens.model.values.positions import Position
from joblens.stores.remote import EventStream, ServerEvent

T = TypeVar("T")
_POLL_S = 0.5
_QUEUED = 1000  # events that a slow reader may be behind; then the stream waits


class AsyncClient:
    """`Client` with methods to await; `jobs`, `samples` and the streams are asynchronous iterators.
    `connections`: requests at a time."""

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
        connections: int = 4,
    ) -> None:
        def make() -> Client:
            return Client(url, token, ca=ca, cert=cert, key=key, timeout_s=timeout_s, note=note)

        self._make = make
        self._first = make()  # wrong addresses are reported here
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="joblens-client")
        self._local = threading.local()
        self._clients: list[Client] = [self._first]

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- jobs

    async def jobs(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Record]:
        found = await self._call(lambda client: client.jobs(**filters))
        while batch := await self._call(lambda _client: _some(found)):
            for record in batch:
                yield record

    async def statistics(self, **filters: Unpack[JobFilters]) -> Statistics:
        return await self._call(lambda client: client.statistics(**filters))

    async def job(self, job: str | int) -> Record:
        return await self._call(lambda client: client.job(job))

    async def running(self) -> list[Record]:
        return await self._call(lambda client: client.running())

    async def samples(self, job: str | int, after: int = -1) -> AsyncIterator[tuple[int, Sample]]:
        found = await self._call(lambda client: client.samples(job, after))
        while batch := await self._call(lambda _client: _some(found)):
            for each in batch:
                yield each

    async def series(self, job: str | int, fields: Sequence[str] = (), points: int = 1000) -> Series:
        return await self._call(lambda client: client.series(job, fields, points))

    async def details(self, job: str | int) -> Details:
        return await self._call(lambda client: client.details(job))

    async def provenance(self, job: str | int) -> Provenance:
        return await self._call(lambda client: client.provenance(job))

    async def annotations(self, job: str | int) -> list[Annotation]:
        return await self._call(lambda client: client.annotations(job))

    async def log(self, job: str | int, stream: str = "stdout", tail: int | None = None) -> bytes:
        return await self._call(lambda client: client.log(job, stream, tail))

    async def advice(self, *names: str) -> Advice:
        return await self._call(lambda client: client.advice(*names))

    async def sql(self, text: str, *, rows: int = 10_000, seconds: float = 30.0) -> SqlAnswer:
        return await self._call(lambda client: client.sql(text, rows=rows, seconds=seconds))

    async def health(self) -> Health:
        return await self._call(lambda client: client.health())

    # ---- runs

    async def workflows(self) -> list[Workflow]:
        return await self._call(lambda client: client.workflows())

    async def runs(self, workflow: str | int) -> list[Run]:
        return await self._call(lambda client: client.runs(workflow))

    async def run(self, run: str) -> Run:
        return await self._call(lambda client: client.run(run))

    async def run_jobs(self, run: str) -> list[ResultRow]:
        return await self._call(lambda client: client.run_jobs(run))

    async def run_events(self, run: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        return await self._call(lambda client: client.run_events(run, after))

    # ---- streams

    async def follow_samples(
        self, job: str | int, after: int | str = -1
    ) -> AsyncIterator[tuple[int, Sample]]:
        async for event in self._follow(self._first.stream_of_samples(job, after), "sample"):
            yield Position.parse(event.id).index, msgspec.json.decode(event.data, type=Sample)

    async def follow_log(self, job: str | int, stream: str = "stdout") -> AsyncIterator[bytes]:
        async for event in self._follow(self._first.stream_of_log(job, stream), "log"):
            yield printed(event.data)

    async def follow_run(self, run: str, after: int = 0) -> AsyncIterator[tuple[int, RunEvent]]:
        async for event in self._follow(self._first.stream_of_run(run, after), "run-event"):
            yield int(event.id), msgspec.json.decode(event.data, type=RunEvent)

    async def wait(self, job: str | int, timeout_s: float | None = None) -> Record:
        """Returns the record once the job has ended. Raises TimeoutError."""
        uuid = (await self.job(job)).job.uuid
        async with asyncio.timeout(timeout_s):
            while not (record := await self.job(uuid)).status.is_final:  # noqa: ASYNC110 - a server is polled
                await asyncio.sleep(_POLL_S)
        return record

    async def wait_for_run(self, run: str, timeout_s: float | None = None) -> Run:
        uuid = (await self.run(run)).uuid
        async with asyncio.timeout(timeout_s):
            while (found := await self.run(uuid)).status in UNFINISHED:  # noqa: ASYNC110 - a server is polled
                await asyncio.sleep(_POLL_S)
        return found

    # ---- changes

    async def submit(self, command: Texts, **options: Unpack[SubmitOptions]) -> Record:
        return await self._call(lambda client: client.submit(command, **options))

    async def cancel(self, job: str | int) -> Record:
        return await self._call(lambda client: client.cancel(job))

    async def rerun(self, job: str | int, env: Mapping[str, str] | None = None) -> Record:
        return await self._call(lambda client: client.rerun(job, env))

    async def tag(self, job: str | int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Record:
        return await self._call(lambda client: client.tag(job, add=add, remove=remove))

    async def annotate(self, job: str | int, text: str) -> Annotation:
        return await self._call(lambda client: client.annotate(job, text))

    async def delete(self, job: str | int) -> Tombstone:
        return await self._call(lambda client: client.delete(job))

    async def start_run(
        self,
        workflow: Mapping[str, Any],
        *,
        cwd: str,
        output_dir: str = "output",
        parameters: Mapping[str, Any] | None = None,
    ) -> Run:
        return await self._call(
            lambda client: client.start_run(workflow, cwd=cwd, output_dir=output_dir, parameters=parameters)
        )

    async def cancel_run(self, run: str) -> Run:
        return await self._call(lambda client: client.cancel_run(run))

    async def resume_run(self, run: str) -> Run:
        return await self._call(lambda client: client.resume_run(run))

    async def rerun_run(self, run: str, *, failed: bool = False, only: Sequence[str] = ()) -> Run:
        return await self._call(lambda client: client.rerun_run(run, failed=failed, only=only))

    # ----

    async def _call(self, function: Callable[[Client], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._on_thread, function)

    def _on_thread(self, function: Callable[[Client], T]) -> T:
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._make()
            self._clients.append(client)
        return function(client)

    async def _follow(self, stream: EventStream, name: str) -> AsyncIterator[ServerEvent]:
        """Reads a stream on a thread of its own; leaving the loop ends it."""
        loop, found = asyncio.get_running_loop(), asyncio.Queue[ServerEvent | BaseException | None]()
        capacity = threading.Semaphore(_QUEUED)

        def read() -> None:
            ending: BaseException | None = None
            try:
                for event in stream:
                    capacity.acquire()
                    loop.call_soon_threadsafe(found.put_nowait, event)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                ending = error
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(found.put_nowait, ending)

        threading.Thread(target=read, name="joblens-stream", daemon=True).start()
        try:
            while isinstance(event := await found.get(), ServerEvent):
                capacity.release()
                if event.name == name:
                    yield event
            if event is not None:
                raise event
        finally:
            stream.close()
            capacity.release()


def _some(found: Any) -> list[Any]:
    from itertools import islice

    return list(islice(found, 500))
