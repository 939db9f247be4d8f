"""Ray proxy of a run: `python -m joblens.runners.ray.proxy SOCKET`, its only process that uses Ray.

It outlives the driver of its run: placed jobs continue, and the next driver finds the proxy at its socket. It
ends with the run, when no work is left and no driver is connected, or with its cluster."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from joblens.model.clusters.placement import AllocationState
from joblens.model.values.messages import MessageReader, message_line
from joblens.runners.nodes.listener import listen_at
from joblens.runners.ray.cluster import ClusterError, RayCluster
from joblens.runners.ray.messages import (
    AllocationReport,
    Begun,
    Close,
    Finished,
    Follow,
    FromProxy,
    FromTask,
    Need,
    Open,
    Opened,
    PlaceJobs,
    Printed,
    Refused,
    TaskInput,
    ToProxy,
    Wanted,
    Warned,
    Withdraw,
    WorkerNotStarted,
)
from joblens.runners.ray.own_cluster import folder_note
from joblens.runners.ray.requirements import Bundling, wait_reason, width_of

_NODES_EVERY_S = 1.0
_WHY_AFTER_S = 3.0  # after this time without a start, jobs get a reason
_ALONE_S = 30.0  # without a driver and without work, before it exits
_LAST_WORDS_S = 5.0  # of tasks, when the run is over
_LOST = 3
_READ_BYTES = 1 << 16


class _Task:
    """Task of Ray, for some jobs."""

    def __init__(self, jobs: Sequence[Wanted], handle: Any) -> None:
        self.jobs = jobs
        self.handle = handle
        self.left = {job.uuid for job in jobs}
        self.since_s = time.monotonic()
        self.why = ""  # reported reason for waiting
        self.following: asyncio.Task[None] | None = None
        self.began_on = ""
        self.node_id = ""
        self.is_withdrawn = False
        self.seconds = 0.0
        self.ended = 0

    @property
    def need(self) -> Need:
        return self.jobs[0].need

    @property
    def kind(self) -> int:
        return self.jobs[0].kind


class RayProxy:
    """Runs on one asyncio loop; slow calls of Ray are made on threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._cluster: RayCluster | None = None
        self._open: Open | None = None
        self._bundling = Bundling()
        self._tasks: dict[str, _Task] = {}  # by uuid of each of its jobs
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[FromProxy] = []  # while no driver is connected
        self._over = asyncio.Event()
        self._is_submitting = False
        self._background: set[asyncio.Task[None]] = set()
        self._nodes: tuple[Any, ...] = ()
        self._alone_since_s = time.monotonic()
        self._warned: set[str] = set()

    async def serve(self) -> None:
        path = self._path
        server = await asyncio.start_unix_server(self._serve_driver, sock=listen_at(path, 4))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        async with server:
            self._go(self._watch())
            await self._over.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)

    def _go(self, coroutine: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # ---- the driver ------------------------------------------------------------------------------------

    async def _serve_driver(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            self._writer.close()  # of a driver that is gone: a run has one
        self._writer = writer
        for unsent in self._unsent:
            self._send(unsent)
        self._unsent.clear()
        messages: MessageReader[ToProxy] = MessageReader(ToProxy)
        try:
            while data := await reader.read(_READ_BYTES):
                for message in messages.feed(data):
                    await self._handle(message)
        except asyncio.CancelledError:
            pass  # the proxy closes
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._warn(f"the proxy at Ray cannot understand the run: {error}")
        finally:
            if self._writer is writer:
                self._writer = None
                self._alone_since_s = time.monotonic()
            writer.close()

    def _report(self, message: FromProxy) -> None:
        if self._writer is None:
            self._unsent.append(message)
        else:
            self._send(message)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._report(Warned(text))

    def _send(self, message: FromProxy) -> None:
        assert self._writer is not None
        self._writer.write(message_line(message))

    async def _handle(self, message: ToProxy) -> None:
        match message:
            case Open():
                await self._connect(message)
            case PlaceJobs():
                known = self._known
                self._bundling.add([job for job in message.jobs if job.uuid not in known])
                self._submit()
            case Withdraw():
                self._withdraw(message.uuids)
            case Follow():
                known = self._known
                lost = tuple(uuid for uuid in message.uuids if uuid not in known)
                if lost:
                    reason = "the process that had placed it at Ray is gone"
                    self._report(
                        AllocationReport(
                            state=AllocationState.ENDED,  # its worker has returned it
                            uuids=lost,
                            word="OWNER_DIED",
                            reason=reason,
                            is_by_others=True,
                        )
                    )
            case Close():
                if message.is_over:
                    self._go(self._end())

    @property
    def _known(self) -> set[str]:
        return self._bundling.uuids | self._tasks.keys()

    async def _connect(self, message: Open) -> None:
        self._open = message
        self._bundling.is_ranked = message.is_ranked
        if self._cluster is None:
            try:
                self._cluster = await asyncio.to_thread(
                    RayCluster, message.address, message.own, folder_note(self._path)
                )
                self._nodes = await asyncio.to_thread(self._cluster.nodes)
            except ClusterError as error:
                self._report(Refused(why=str(error), is_missing=error.is_missing))
                await self._drain()
                self._over.set()
                return
        self._report(Opened(nodes=self._nodes, address=self._cluster.address))
        self._submit()

    async def _drain(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await self._writer.drain()

    async def _watch(self) -> None:
        """Watches for nodes that join or leave, and exits when the proxy is no longer needed."""
        while not self._over.is_set():
            await asyncio.sleep(_NODES_EVERY_S)
            is_idle = self._writer is None and not self._known
            if is_idle and time.monotonic() - self._alone_since_s > _ALONE_S:
                self._over.set()
            if self._cluster is None:
                continue
            if not self._cluster.is_alive:
                print("the Ray of this run has died", file=sys.stderr)  # noqa: T201 - its log
                os._exit(_LOST)  # the rest of it hangs; the run starts another
            nodes = await asyncio.to_thread(self._cluster.nodes)
            if nodes != self._nodes:
                self._nodes = nodes
                self._report(Opened(nodes=nodes, address=self._cluster.address))
                self._submit()
            self._report_waiting()

    def _report_waiting(self) -> None:
        """Reports why jobs wait, unless others of the run are running."""
        tasks = set(self._tasks.values())
        if any(task.began_on for task in tasks):
            return
        whys: dict[str, list[str]] = {}
        for task in tasks:
            why = wait_reason(task.need, self._nodes)
            if task.why != why and time.monotonic() - task.since_s > _WHY_AFTER_S:
                task.why = why
                whys.setdefault(why, []).extend(task.left)
        for why, uuids in whys.items():
            self._report(
                AllocationReport(
                    state=AllocationState.WAITING, uuids=tuple(uuids), word="PENDING", reason=why
                )
            )

    # ---- jobs ------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        if self._cluster is None or self._open is None:
            return
        now_s = time.monotonic()
        width = {need: width_of(need, self._nodes) for need in self._bundling.needs}
        for jobs in self._bundling.take(width, now_s):
            task_input = TaskInput(
                uuids=tuple(job.uuid for job in jobs),
                need=jobs[0].need,
                run_uuid=self._cluster.run_of(self._open.config),
                config=self._open.config,
                argv=self._open.argv,
                folder=self._open.folder,
                mark=self._open.mark,
            )
            task = _Task(jobs, self._cluster.start(task_input))
            for job in jobs:
                self._tasks[job.uuid] = task
            task.following = self._go(self._follow(task))
        due_s = self._bundling.next_due_s()
        if due_s is not None and not self._is_submitting:
            self._is_submitting = True
            asyncio.get_running_loop().call_later(max(0.01, due_s - now_s), self._submit_again)

    def _submit_again(self) -> None:
        self._is_submitting = False
        self._submit()

    async def _follow(self, task: _Task) -> None:
        """Follows a task to its end."""
        assert self._cluster is not None
        message, reason, is_by_others = "", "", False
        try:
            async for event in self._cluster.messages_of(task.handle):
                reason = self._take(task, event) or reason
        except ClusterError as error:
            message, reason, is_by_others = error.word, str(error), error.is_by_others
        for uuid in [job.uuid for job in task.jobs if self._tasks.get(job.uuid) is task]:
            del self._tasks[uuid]
        self._bundling.ended(task.need, task.kind, task.ended, task.seconds)
        if task.left:
            state = AllocationState.ENDED if task.is_withdrawn else AllocationState.GONE
            report = AllocationReport(
                state=state,
                uuids=tuple(task.left),
                word=message or "LOST",
                reason=reason,
                is_by_others=is_by_others,
            )
            self._report(report)
        self._cluster.forget(task.handle)
        self._submit()

    def _take(self, task: _Task, event: FromTask) -> str:
        """Returns why it cannot continue, if reported."""
        match event:
            case Begun():
                task.began_on, task.node_id = event.host, event.node_id
                self._bundling.began(task.need, task.kind, time.monotonic())
                self._submit()
            case WorkerNotStarted():
                return event.why
            case Finished():
                task.seconds, task.ended = event.seconds, len(event.ended)
                task.left -= {*event.ended, *event.let_go}
                if event.ended:
                    self._report(
                        AllocationReport(state=AllocationState.ENDED, uuids=event.ended, word="FINISHED")
                    )
                if event.let_go:
                    self._report(
                        AllocationReport(state=AllocationState.ENDED, uuids=event.let_go, word="GIVEN_BACK")
                    )
            case Printed():
                try:
                    _write(event)
                except OSError as error:
                    self._warn(f"what was printed on {task.began_on} cannot be kept: {error}")
        return ""

    def _withdraw(self, uuids: Sequence[str]) -> None:
        here = self._bundling.remove(set(uuids))
        if here:
            self._report(AllocationReport(state=AllocationState.ENDED, uuids=tuple(here), word="WITHDRAWN"))
        assert self._cluster is not None
        wanted = set(uuids)
        for task in {id(one): one for one in map(self._tasks.get, uuids) if one is not None}.values():
            if not task.began_on and task.left <= wanted:
                task.is_withdrawn = True
                self._cluster.cancel(task.handle)

    async def _end(self) -> None:
        """Waits for the last output of jobs, which have ended."""
        self._cancel([task for task in set(self._tasks.values()) if not task.began_on])
        last = {task.following for task in self._tasks.values() if task.following and task.began_on}
        if last:
            await asyncio.wait(last, timeout=_LAST_WORDS_S)
        self._cancel(set(self._tasks.values()))
        self._over.set()

    def _cancel(self, tasks: Collection[_Task]) -> None:
        for task in tasks:
            task.is_withdrawn = True
            if self._cluster is not None:
                self._cluster.cancel(task.handle)


def _write(printed: Printed) -> None:
    """Writes output to the run's own folder, which is on this machine."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if printed.is_whole else 0)
    os.makedirs(os.path.dirname(printed.path), 0o700, exist_ok=True)
    descriptor = os.open(printed.path, flags, 0o600)
    try:
        os.pwrite(descriptor, printed.data, printed.offset)
    finally:
        os.close(descriptor)


def main() -> None:
    """Runs the proxy. The umask stays unchanged: a Ray that is started here passes it to the jobs. Its own
    files are in a private folder."""
    asyncio.run(RayProxy(sys.argv[1]).serve())


if __name__ == "__main__":
    main()
