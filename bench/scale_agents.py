"""Simulated agents of many nodes in a few processes.

Each reads and writes the store as the worker on a node does, through the same code and two connections of its
own; only the jobs are simulated: their samples and details are copies of a real one's.
"""

import contextlib
import heapq
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.queue.lost_workers import poll_every_s
from joblens.engine.life.held_claim import renew_every_s
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.errors import StoreError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Attempt, Outcome, Owner, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, JobStarted, SamplesTaken, Write
from joblens.stores.postgres import PostgresStore

SAMPLE_EVERY_S = 10.0
LEASE_S = 30.0
LOOK_FOR_WORK_S = 1.0  # as a worker without a broker
_HANDS = 6  # threads of a process that play its agents


class Script(NamedTuple):
    """Parameters of the simulation."""

    url: str
    samples: tuple[Sample, ...]
    details: Details
    mean_job_s: float
    queue: str = "default"


class Counts(Struct):
    """Of the agents of one process, since the clock was started."""

    samples: int = 0
    jobs_started: int = 0
    jobs_ended: int = 0
    calls: int = 0  # of the store
    failures: int = 0
    lags_s: list[float] = []  # of samples: from when they were due until they were durably in the store
    late: int = 0  # not in the store before the next one was due
    overdue: int = 0  # agents that waited for their turn at the end
    cpu_s: float = 0.0
    last_error: str = ""


class _Running(Struct):
    uuid: str
    fence: int
    began_s: float
    ends_s: float
    attempt: Attempt
    taken: int = 0


class Agent:
    """Each of its duties has its own interval;

    `turn` does the one that is due and returns when to call again.
    """

    def __init__(self, place: int, script: Script, result: Counts, dice: random.Random) -> None:
        self._script = script
        self._counts = result
        self._dice = dice
        host = f"node{place:05}"
        self.info = WorkerInfo(
            name=f"{host}-{4000 + place}-{os.urandom(4).hex()}",
            host=host,
            pid=4000 + place,
            user="ann",
            queues=(script.queue,),
            concurrency=1,
            cpus=16.0,
            memory_bytes=64 << 30,
            version="1",
            boot_id=host,
            any_user=True,
        )
        self._facts, self._queue = PostgresStore(script.url), PostgresStore(script.url)
        self._running: _Running | None = None
        self._workers = 0
        now_s = time.monotonic()
        self._due: dict[str, float] = {
            "renew": now_s + dice.uniform(0, renew_every_s(LEASE_S, is_busy=True, workers=0)),
            "watch": now_s + dice.uniform(0, poll_every_s(LEASE_S)),
            "claim": now_s + dice.uniform(0, SAMPLE_EVERY_S),
        }

    @property
    def next_s(self) -> float:
        return min(self._due.values())

    def turn(self) -> None:
        duty = min(self._due, key=self._due.__getitem__)
        due_s = self._due[duty]
        self._counts.calls += 1
        try:
            getattr(self, f"_{duty}")(due_s)
        except StoreError as error:
            self._counts.failures += 1
            self._counts.last_error = str(error)
            self._due[duty] = time.monotonic() + 1.0

    def do(self, duty: str) -> None:
        """One of them now, whether it is due or not."""
        getattr(self, f"_{duty}")(time.monotonic())

    def close(self) -> None:
        for store in (self._facts, self._queue):
            with contextlib.suppress(StoreError):
                store.close()

    def _renew(self, _: float) -> None:
        held = {} if self._running is None else {self._running.uuid: self._running.fence}
        renewal = self._queue.renew(replace(self.info, running=len(held)), held, LEASE_S)
        assert not renewal.fenced, "a lease was lost"
        self._workers = renewal.workers or self._workers
        pause_s = renew_every_s(LEASE_S, is_busy=bool(held), workers=self._workers)
        self._due["renew"] = time.monotonic() + pause_s

    def _watch(self, _: float) -> None:
        """Checks for lost workers, and for jobs that the store assigns to this one."""
        self._queue.now_us()
        holdings = self._queue.holdings(near=self.info)
        if any(one.worker != self.info.name for one in holdings):
            self._queue.now_us()
        self._due["watch"] = time.monotonic() + poll_every_s(LEASE_S, self._workers)

    def _claim(self, _: float) -> None:
        claims = self._queue.claim_waiting(self.info, 1, LEASE_S)
        now_s = time.monotonic()
        if not claims:
            self._due["claim"] = now_s + LOOK_FOR_WORK_S
            return
        (claim,) = claims
        del self._due["claim"]
        self._running = running = self._begin(claim, now_s)
        self._facts.apply([JobStarted(running.uuid, running.attempt, fence=running.fence)])
        self._counts.jobs_started += 1
        self._due["sample"] = now_s + self._dice.uniform(0.5, SAMPLE_EVERY_S)
        self._due["end"] = running.ends_s

    def _begin(self, claim: Claim, now_s: float) -> _Running:
        attempt = Attempt(
            started_at_us=time.time_ns() // 1000,
            owner=Owner(self.info.host, self.info.pid, 1, self.info.boot_id),
            pid=self._dice.randrange(2, 1 << 22),
            number=claim.fence,
            accounting="cgroup-v2",
            kernel="6.1.0",
            cpu_count=16,
        )
        ends_s = now_s + self._dice.expovariate(1 / self._script.mean_job_s)
        return _Running(claim.job.uuid, claim.fence, now_s, ends_s, attempt)

    def _sample(self, due_s: float) -> None:
        assert self._running is not None
        self._facts.apply(self._news(self._running))
        lag_s = time.monotonic() - due_s
        self._counts.samples += 1
        self._counts.lags_s.append(lag_s)
        self._counts.late += lag_s > SAMPLE_EVERY_S
        self._due["sample"] = max(due_s + SAMPLE_EVERY_S, time.monotonic())

    def _news(self, running: _Running) -> list[Write]:
        """A sample, and the details that have changed meanwhile."""
        index = running.taken
        running.taken += 1
        sample = self._script.samples[index % len(self._script.samples)]
        details = replace(self._script.details, unknown={"endpoints": f"look {index}"})
        return [
            SamplesTaken(running.uuid, index, (sample,), running.fence),
            DetailsTaken(running.uuid, details, running.fence),
        ]

    def _end(self, _: float) -> None:
        running, self._running = self._running, None
        assert running is not None
        for duty in ("sample", "end"):
            del self._due[duty]
        self._due["claim"] = time.monotonic()
        news = self._news(running)
        self._facts.apply([*news, JobEnded(running.uuid, self._outcome(running), running.fence)])
        self._counts.samples += 1
        self._counts.jobs_ended += 1
        self._queue.states([running.uuid])
        self._queue.released_by([running.uuid])

    def _outcome(self, running: _Running) -> Outcome:
        seconds = time.monotonic() - running.began_s
        cpu = int(seconds * 1e6 * self._dice.uniform(0.2, 3.8))
        status = self._dice.choices((Status.SUCCESS, Status.FAILED, Status.TIMEOUT), (90, 8, 2))[0]
        return Outcome(
            status=status,
            ended_at_us=time.time_ns() // 1000,
            duration_s=seconds,
            exit_code=0 if status is Status.SUCCESS else 1,
            reason="exited",
            usage=Usage(
                cpu_total_usec=cpu,
                cpu_user_usec=cpu * 9 // 10,
                cpu_system_usec=cpu // 10,
                memory_peak_bytes=int(self._dice.lognormvariate(19, 1.2)),
                io_read_bytes=self._dice.randrange(1 << 30),
                io_write_bytes=self._dice.randrange(1 << 28),
                processes_peak=self._dice.randrange(1, 9),
                sources={"cpu": "cgroup v2 cpu.stat", "memory_peak": "cgroup v2 memory.peak"},
            ),
            samples=running.taken,
        )


class Crew:
    """Agents of one process: the next due agent gets the next free thread."""

    def __init__(self, places: range, script: Script, seed: int) -> None:
        self.counts = Counts(lags_s=[])
        self._places = places
        self._script = script
        self._dice = random.Random(seed)
        self._agents: list[Agent] = []
        self._turns: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._is_over = False

    def play(self, connected: Callable[[], Any], start: Any, stop: Any) -> Counts:
        """`start`: from when on is counted; `stop`: for how long."""
        for place in self._places:
            self._agents.append(Agent(place, self._script, self.counts, random.Random(place)))
        self._turns = [(agent.next_s, place) for place, agent in enumerate(self._agents)]
        heapq.heapify(self._turns)
        hands = [threading.Thread(target=self._hand, daemon=True) for _ in range(_HANDS)]
        for hand in hands:
            hand.start()
        connected()
        start.wait()
        with self._changed:
            fresh = Counts(lags_s=[])
            for name in Counts.__struct_fields__:
                setattr(self.counts, name, getattr(fresh, name))
        cpu_s = time.process_time()
        stop.wait()
        self.counts.cpu_s = time.process_time() - cpu_s
        with self._changed:
            now_s = time.monotonic()
            self.counts.overdue = sum(1 for due_s, _ in self._turns if due_s < now_s - 1.0)
            counted = Counts(**{name: getattr(self.counts, name) for name in Counts.__struct_fields__})
            counted.lags_s = list(self.counts.lags_s)
            self._is_over = True
            self._changed.notify_all()
        for hand in hands:
            hand.join(30)
        for agent in self._agents:
            agent.close()
        return counted

    def _hand(self) -> None:
        while True:
            with self._changed:
                while not self._is_over and (not self._turns or self._turns[0][0] > time.monotonic()):
                    wait_s = self._turns[0][0] - time.monotonic() if self._turns else 1.0
                    self._changed.wait(max(0.0, wait_s))
                if self._is_over:
                    return
                _, place = heapq.heappop(self._turns)
            agent = self._agents[place]
            agent.turn()
            with self._changed:
                heapq.heappush(self._turns, (agent.next_s, place))
                self._changed.notify()
