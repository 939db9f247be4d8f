"""A cluster of this one machine, for tests: pilot workers are processes of their own, which outlive the
driver and are known by their pids. `python -m tests.local_backend ARGUMENTS` is joblens with `--engine slurm`
as this cluster.

JOBLENS_TEST_PACKS: one worker for all jobs of a queue, with so many places. JOBLENS_TEST_BROKEN: what is
started ends at once. JOBLENS_TEST_AWAY: while that file is there, the cluster does not answer.
JOBLENS_TEST_MEMORY, JOBLENS_TEST_GPUS: what each worker is given, in bytes and by name."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from joblens.app.clusters import engine as cluster_engine
from joblens.model.clusters.placement import (
    JOB,
    AllocationEvent,
    AllocationState,
    ClusterPreview,
    NodeCapacity,
    Placed,
    PlacementRequest,
    PlannedRequest,
    PreviewStep,
)
from joblens.model.errors import PlacingError, PlanError
from joblens.model.jobs.job import Placement
from joblens.model.runs.plan import Lack, Plan, more_than_there_is
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.ports.workers import WorkerConfigWriter
from joblens.probes.proc.kernel_files import parse_stat


class LocalBackend:
    engine = "slurm"
    allocations = None

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        settings: Settings,
        cli: WorkerConfigWriter,
        warn: Callable[[str], None],
    ) -> None:
        self._cli = cli
        self._packs = int(os.environ.get("JOBLENS_TEST_PACKS", "0"))
        self._memory = os.environ.get("JOBLENS_TEST_MEMORY")
        self._gpus = tuple(filter(None, os.environ.get("JOBLENS_TEST_GPUS", "").split(",")))
        self._away = os.environ.get("JOBLENS_TEST_AWAY", "")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._live: dict[str, Placed] = {}
        self._ran: set[str] = set()

    def check(self, requests: Sequence[PlacementRequest]) -> None:
        have = len(self._gpus)
        lacks = [
            Lack(one.name, "gpus", one.requirements.gpus, have)
            for one in requests
            if one.requirements.gpus is not None and one.requirements.gpus > have
        ]
        if lacks:
            raise more_than_there_is(lacks)

    def preview(self, steps: Sequence[PreviewStep]) -> ClusterPreview:
        self._fail_while_away()
        requests = [
            PlannedRequest(stage=step.stage, kind=JOB, name=one.name, jobs=(int(one.uuid),))
            for step in steps
            for one in step.requests
        ]
        return ClusterPreview(engine=self.engine, where="this machine", requests=tuple(requests))

    def place(self, requests: Sequence[PlacementRequest]) -> list[Placed]:
        self._fail_while_away()
        refused = [one for one in requests if one.name.startswith("refused")]
        if refused:
            raise PlanError(f"the cluster will never take {refused[0].name}")
        if self._packs:
            queues = dict.fromkeys(one.queue for one in requests)
            return [self._start((), queue) for queue in queues]
        return [self._start((one.uuid,), one.queue) for one in requests]

    def _fail_while_away(self) -> None:
        if self._away and os.path.exists(self._away):
            raise PlacingError("the cluster is unreachable")

    def _start(self, uuids: tuple[str, ...], queue: str) -> Placed:
        config = replace(
            self._cli.config,
            tickets=uuids,
            queues=() if uuids else (queue,),
            concurrency=self._packs or 1,
            idle_s=0.0 if uuids else 0.5,
            memory_bytes=int(self._memory) if self._memory else None,
            gpus=self._gpus,
            placement=Placement(engine=self.engine, is_allocation=not uuids),
        )
        path = self._cli.write(config)
        argv = self._cli.argv(path)
        if os.environ.get("JOBLENS_TEST_BROKEN"):
            argv = ["/bin/sh", "-c", "exit 3"]
        # As a batch script would: its own pid is the id by which the cluster knows it.
        shell = 'export SLURM_JOB_ID=$$; exec "$@"'
        log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        process = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(log)
        job_id = str(process.pid)
        self._processes[job_id] = process
        placed = Placed(placement=Placement(engine=self.engine, job_id=job_id), uuids=uuids, queue=queue)
        self._live[job_id] = placed
        return placed

    def ask_for_nodes(self, action: int) -> list[Placed]:
        return []

    def follow(self, placed: Sequence[Placed]) -> None:
        self._live.update((one.placement.job_id, one) for one in placed)

    def withdraw(self, uuids: Sequence[str]) -> None:
        pass  # it begins at once, finds no ticket, and leaves

    def poll(self) -> list[AllocationEvent]:
        self._fail_while_away()
        news = []
        for job_id, placed in list(self._live.items()):
            ended = self._ended(job_id)
            if ended is not None:
                del self._live[job_id]
                state = AllocationState.ENDED if ended == 0 else AllocationState.GONE
                news.append(
                    AllocationEvent(job_id=job_id, state=state, word=f"exit {ended}", uuids=placed.uuids)
                )
            elif job_id not in self._ran:
                self._ran.add(job_id)
                news.append(AllocationEvent(job_id=job_id, state=AllocationState.RUNNING, word="RUNNING"))
        return news

    def _ended(self, job_id: str) -> int | None:
        """-> its exit code; None: it runs"""
        if job_id in self._processes:
            return self._processes[job_id].poll()
        try:
            with open(f"/proc/{job_id}/stat", "rb") as file:
                return None if parse_stat(file.read()).is_alive else 0
        except OSError:
            return 0

    def capacity(self) -> NodeCapacity | None:
        return None

    def close(self, *, is_over: bool) -> None:
        for job_id in self._live if is_over else ():
            with suppress(ProcessLookupError):
                os.kill(int(job_id), signal.SIGTERM)


def main() -> None:
    from joblens.__main__ import entry

    cluster_engine.BACKENDS["slurm"] = ("tests.local_backend", "LocalBackend")
    entry()


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    main()
