"""Something to plot: runs as a scheduler would have run them, and files as Torc writes them."""

import heapq
import json
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Requirements, RunLink, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import Run, RunEnded, RunEvent, RunStarted, RunStatus, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.values.units import GIB, MIB
from joblens.model.writes import (
    JobEnded,
    JobQueued,
    JobStarted,
    RunCreated,
    RunNoted,
    SamplesTaken,
    WorkflowCreated,
    Write,
)
from joblens.ports.store import Store

NOON_US = 1_763_208_000_000_000
SECOND = 1_000_000
OWNER = Owner("node7", 100, 200, "boot")


def fan_plan(branches: int, name: str = "sweep", long_names: bool = False) -> Plan:
    """prepare, then branches of two jobs each, then collect."""
    rng = random.Random(branches)
    tail = "_learning_rate_0.001_batch_size_256_seed_" if long_names else "_"
    jobs = [PlannedJob(name="prepare", command="prepare", requirements=_asks(1, 1))]
    for branch in range(branches):
        asks = _asks(rng.choice((1, 2, 4)), rng.choice((1, 2, 4)))
        jobs.append(
            PlannedJob(name=f"train{tail}{branch:03d}", command="train", depends_on=(0,), requirements=asks)
        )
        jobs.append(
            PlannedJob(
                name=f"score{tail}{branch:03d}",
                command="score",
                depends_on=(len(jobs) - 1,),
                requirements=_asks(1, 1),
            )
        )
    scores = tuple(range(2, len(jobs), 2))
    jobs.append(PlannedJob(name="collect", command="collect", depends_on=scores, requirements=_asks(2, 2)))
    return Plan(name=name, jobs=tuple(jobs))


def _asks(cpus: int, gib: int) -> Requirements:
    return Requirements(cpus=float(cpus), memory_bytes=gib * GIB)


def fill_run(store: Store, plan: Plan, *, cpus: int = 8, seed: int = 1, interval_s: float = 1.0) -> Run:
    """The plan as `cpus` cores would have run it, in the store; every seventh job failed once."""
    workflow = Workflow(uuid=new_uuid(), name=plan.name, created_at_us=NOON_US)
    run = Run(
        uuid=new_uuid(),
        workflow_uuid=workflow.uuid,
        created_at_us=NOON_US,
        spec_text=spec_text(plan),
        spec_format="json",
        jobs=len(plan.jobs),
        host="node7",
    )
    writes: list[Write] = [WorkflowCreated(workflow), RunCreated(run)]
    started = RunStarted(OWNER, float(cpus), 32 * GIB)
    writes.append(RunNoted(RunEvent(new_uuid(), run.uuid, NOON_US, started)))
    end_us = NOON_US
    for index, attempt, begin_us, seconds in _as_scheduled(plan, cpus, random.Random(seed)):
        is_failure = index % 7 == 3 and attempt == 1
        writes += _one(plan, run, index, attempt, begin_us, seconds, is_failure, interval_s)
        end_us = max(end_us, begin_us + round(seconds * SECOND))
    writes.append(RunNoted(RunEvent(new_uuid(), run.uuid, end_us, RunEnded(RunStatus.COMPLETED))))
    store.apply(writes)
    return store.find_run(run.uuid)


def spec_text(plan: Plan) -> str:
    """The plan as someone would have written it."""
    jobs = [
        {
            "name": job.name,
            "command": job.command,
            "depends_on": [plan.jobs[index].name for index in job.depends_on],
            "cpus": job.requirements.cpus,
            "memory": job.requirements.memory_bytes,
        }
        for job in plan.jobs
    ]
    return json.dumps({"name": plan.name, "jobs": jobs})


def _as_scheduled(plan: Plan, cpus: int, rng: random.Random) -> list[tuple[int, int, int, float]]:
    """(index, attempt, begin, seconds): first come, first served."""
    left = float(cpus)
    waiting = [len(job.depends_on) for job in plan.jobs]
    ready = [index for index, count in enumerate(waiting) if not count]
    running: list[tuple[int, int]] = []
    tries: dict[int, int] = {}
    now_us, done = NOON_US + 20_000, []
    while ready or running:
        for index in list(ready):
            needs = plan.jobs[index].requirements.cpus or 1.0
            if needs <= left:
                ready.remove(index)
                left -= needs
                tries[index] = tries.get(index, 0) + 1
                seconds = rng.uniform(4, 30)
                done.append((index, tries[index], now_us, seconds))
                heapq.heappush(running, (now_us + round(seconds * SECOND), index))
        now_us, index = heapq.heappop(running)
        left += plan.jobs[index].requirements.cpus or 1.0
        if index % 7 == 3 and tries[index] == 1:
            ready.insert(0, index)
            continue
        for later, job in enumerate(plan.jobs):
            if index in job.depends_on:
                waiting[later] -= 1
                if not waiting[later]:
                    ready.append(later)
        now_us += 5_000
    return done


def _one(
    plan: Plan,
    run: Run,
    index: int,
    attempt: int,
    begin_us: int,
    seconds: float,
    is_failure: bool,
    interval_s: float,
) -> list[Write]:
    planned = plan.jobs[index]
    job = Job(
        uuid=new_uuid(),
        argv=(planned.command,),
        created_at_us=begin_us,
        name=planned.name,
        requirements=planned.requirements,
        run=RunLink(run.uuid, index, attempt),
    )
    rng = random.Random(index * 10 + attempt)
    samples = series(begin_us, seconds, interval_s, planned.requirements.cpus or 1.0, rng)
    usage = Usage(
        cpu_total_usec=samples[-1].cpu_total_usec,
        memory_peak_bytes=max(sample.memory_anon_bytes or 0 for sample in samples),
        memory_mean_bytes=sum(sample.memory_anon_bytes or 0 for sample in samples) // len(samples),
        processes_peak=max(sample.processes or 0 for sample in samples),
    )
    outcome = Outcome(
        status=Status.FAILED if is_failure else Status.SUCCESS,
        ended_at_us=begin_us + round(seconds * SECOND),
        duration_s=seconds,
        exit_code=1 if is_failure else 0,
        usage=usage,
    )
    return [
        JobQueued(job),
        JobStarted(job.uuid, Attempt(started_at_us=begin_us, owner=OWNER)),
        SamplesTaken(job.uuid, 0, tuple(samples)),
        JobEnded(job.uuid, outcome),
    ]


def series(
    begin_us: int, seconds: float, interval_s: float, cores: float, rng: random.Random
) -> list[Sample]:
    samples = []
    cpu = 0.0
    ticks = max(2, int(seconds / interval_s) + 1)
    for tick in range(ticks):
        at_s = min(seconds, tick * interval_s)
        if tick:
            cpu += interval_s * cores * rng.uniform(0.4, 1.0) * SECOND
        memory = round((0.2 + 0.8 * at_s / seconds) * cores * 300 * MIB * rng.uniform(0.9, 1.1))
        samples.append(
            Sample(
                at_us=begin_us + round(at_s * SECOND),
                elapsed_us=round(at_s * SECOND),
                cpu_total_usec=round(cpu),
                memory_anon_bytes=memory,
                processes=1 + tick % 4,
                host_cpu_busy_usec=round(cpu * 2),
                host_cpu_total_usec=round(at_s * 16 * SECOND),
                host_memory_used_bytes=9 * GIB + memory,
                host_memory_total_bytes=64 * GIB,
            )
        )
    return samples


def torc_file(
    path: Path, jobs: Sequence[int] = (1, 2, 3), *, at_s: int = 1_763_208_000, with_machine: bool = True
) -> Path:
    """As Torc writes it: whole seconds, write-ahead log, the machine's numbers in newer versions."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """PRAGMA journal_mode=WAL;
        CREATE TABLE job_resource_samples (job_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
            cpu_percent REAL NOT NULL, memory_bytes INTEGER NOT NULL, num_processes INTEGER NOT NULL,
            PRIMARY KEY (job_id, timestamp));
        CREATE TABLE job_metadata (job_id INTEGER PRIMARY KEY, job_name TEXT NOT NULL);"""
    )
    for job in jobs:
        connection.execute("INSERT INTO job_metadata VALUES (?, ?)", (job, f"work_{job}"))
        rng = random.Random(job)
        rows = [
            (
                job,
                at_s + job * 7 + tick * 5,
                rng.uniform(50, 100) * job,
                (tick + job) * 64 * MIB,
                1 + tick % 3,
            )
            for tick in range(12)
        ]
        connection.executemany("INSERT INTO job_resource_samples VALUES (?, ?, ?, ?, ?)", rows)
    if with_machine:
        connection.executescript(
            """CREATE TABLE system_resource_samples (timestamp INTEGER PRIMARY KEY, cpu_percent REAL NOT NULL,
                memory_bytes INTEGER NOT NULL, total_memory_bytes INTEGER NOT NULL);
            CREATE TABLE system_resource_summary (sample_count INTEGER NOT NULL,
                peak_cpu_percent REAL NOT NULL, avg_cpu_percent REAL NOT NULL,
                peak_memory_bytes INTEGER NOT NULL,
                avg_memory_bytes INTEGER NOT NULL);"""
        )
        machine = [(at_s + tick * 5, 30.0 + tick, (8 + tick % 3) * GIB, 64 * GIB) for tick in range(16)]
        connection.executemany("INSERT INTO system_resource_samples VALUES (?, ?, ?, ?)", machine)
    connection.commit()
    connection.close()
    return path


def documented_torc_file(path: Path) -> Path:
    """As Torc's manual has it: fractions of seconds, an id for each row, no names."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """CREATE TABLE job_resource_samples (id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL,
            timestamp REAL NOT NULL, cpu_percent REAL, memory_bytes INTEGER, num_processes INTEGER);
        INSERT INTO job_resource_samples VALUES (1, 4, 1763208000.25, 50.0, 104857600, 1),
            (2, 4, 1763208000.75, 70.0, 94371840, 2), (3, 4, 1763208001.25, 71.5, 94371840, 2);"""
    )
    connection.commit()
    connection.close()
    return path
