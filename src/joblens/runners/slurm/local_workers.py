"""Workers on this machine, for actions whose `scheduler_type` is local: they serve the run's queues as an
allocation does, without Slurm."""

import os
import signal
import subprocess

from msgspec.structs import replace

from joblens.model.clusters.placing import AllocationEvent, Placed, PlaceState, WorkerConfig
from joblens.model.errors import PlacingError
from joblens.model.jobs.job import Placement
from joblens.ports.pilot_workers import WorkerConfigWriter

_PREFIX = "here-"


class WorkersHere:
    def __init__(self, desk: WorkerConfigWriter) -> None:
        self._desk = desk
        self._started: dict[str, tuple[subprocess.Popen[bytes], str]] = {}  # with the path of its hire
        self._followed: dict[str, int] = {}  # of an earlier driver
        self._queues: dict[str, tuple[str, ...]] = {}  # that they serve

    def start(self, hire: WorkerConfig) -> Placed:
        placement = Placement(engine="slurm", is_allocation=True, nodes=(os.uname().nodename,))
        path = self._desk.write(replace(hire, placement=placement))
        try:
            process = subprocess.Popen(
                self._desk.argv(path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            self._desk.drop(path)
            raise PlacingError(f"a worker cannot be started here: {error}") from error
        job_id = f"{_PREFIX}{process.pid}"
        placed = Placed(placement=replace(placement, job_id=job_id), queue=hire.queues[0])
        self._started[job_id] = (process, path)
        self._queues[job_id] = hire.queues
        return placed

    def follow(self, placed: Placed, queues: tuple[str, ...]) -> bool:
        """Whether it was one of these."""
        job_id = placed.placement.job_id
        if not job_id.startswith(_PREFIX):
            return False
        self._followed[job_id] = int(job_id.removeprefix(_PREFIX))
        self._queues[job_id] = queues
        return True

    def serves(self, queue: str) -> bool:
        return any(queue in queues for queues in self._queues.values())

    def look(self) -> list[AllocationEvent]:
        news = []
        for job_id, (process, path) in list(self._started.items()):
            code = process.poll()
            if code is None:
                continue
            del self._started[job_id], self._queues[job_id]
            state = PlaceState.ENDED if code == 0 else PlaceState.GONE
            reason = self._desk.last_words(path) if code else ""
            news.append(AllocationEvent(job_id=job_id, state=state, word=f"exit code {code}", reason=reason))
            self._desk.drop(path)
        for job_id, pid in list(self._followed.items()):
            if not os.path.exists(f"/proc/{pid}"):
                del self._followed[job_id], self._queues[job_id]
                # Whether it came to its own end nobody has seen: its leases tell.
                news.append(AllocationEvent(job_id=job_id, state=PlaceState.ENDED, word="left"))
        return news

    def end(self) -> None:
        """Only those started here: the number of another may have been given to somebody else."""
        for process, _ in self._started.values():
            process.send_signal(signal.SIGTERM)
