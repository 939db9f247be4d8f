"""A store of a million jobs, and the size of a sample on disk."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from bench.commands import JOBLENS, WORKLOADS, Workbench, wall_s
from bench.goals import Figure
from joblens.analysis.formats.history import to_history_record
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.stores.sqlite import SqliteStore

JOBS = 1_000_000
LINES = 100_000  # of the JSONL that are read; its time is linear in them
BATCH = 2000
SAMPLING_S = 60


def figures(bench: Workbench) -> Iterator[Figure]:
    yield _bytes_a_sample(bench)
    yield from _million_jobs(bench)


def _million_jobs(bench: Workbench) -> Iterator[Figure]:
    path, lines = bench.path("million.db"), bench.path("million.jsonl")
    last = _fill(path, lines)
    env = {**bench.env, "JOBLENS_STORE": path}
    jsonl_s = _read_jsonl_s(lines) * JOBS / LINES
    for words in (("history",), ("stats",), ("show", last)):
        command = [*JOBLENS, *words]
        ours_s = median(wall_s(command, env) for _ in range(7))
        note = f"{ours_s:.3f} s against {jsonl_s:.1f} s"
        name = f"{words[0]} of {JOBS:,} jobs"
        yield Figure(f"{name} against reading JSONL", jsonl_s / ours_s, "x", 50, at_least=True, note=note)
        yield Figure(name, ours_s, "s", 0.5)
    os.unlink(lines)


def _read_jsonl_s(path: str) -> float:
    """Measures a query on the plain file: every line must be read."""
    start = time.perf_counter()
    with open(path, encoding="utf-8") as file:
        count = sum(1 for line in file if json.loads(line)["status"])
    assert count == LINES
    return time.perf_counter() - start


def _fill(path: str, lines: str) -> str:
    store, dice = SqliteStore(path), random.Random(11)
    with open(lines, "wb") as file:
        for start in range(0, JOBS, BATCH):
            records = [_record(start + place, dice) for place in range(BATCH)]
            writes: list[Write] = []
            for record in records:
                writes += _life(record)
            store.apply(writes)
            if start < LINES:
                file.writelines(msgspec.json.encode(to_history_record(record)) + b"\n" for record in records)
    (newest,) = store.records(HistoryQuery(limit=1))
    store.close()
    return newest.job.uuid


def _life(record: Record) -> list[Write]:
    assert record.attempt is not None
    assert record.outcome is not None
    uuid = record.job.uuid
    return [JobQueued(record.job), JobStarted(uuid, record.attempt), JobEnded(uuid, record.outcome)]


def past_lives(jobs: int, began_us: int, apart_us: int) -> Iterator[list[Write]]:
    """Yields all writes of ended jobs, in batches."""
    dice = random.Random(11)
    for start in range(0, jobs, BATCH):
        writes: list[Write] = []
        for place in range(start, min(jobs, start + BATCH)):
            writes += _life(_record(place, dice, began_us + place * apart_us))
        yield writes


def started_life(place: int) -> list[Write]:
    """A job that runs."""
    return _life(_record(place, random.Random(place)))[:2]


def _record(place: int, dice: random.Random, started_us: int | None = None) -> Record:
    started = 1_700_000_000_000_000 + place * 30_000_000 if started_us is None else started_us
    duration_s = dice.lognormvariate(3, 1.5)
    cpu = int(duration_s * 1e6 * dice.uniform(0.2, 3.8))
    status = dice.choices((Status.SUCCESS, Status.FAILED, Status.TIMEOUT), (90, 8, 2))[0]
    tool = dice.choice(("fenicsx", "lammps", "openfoam", "python", "bash"))
    numbers = Usage(
        cpu_total_usec=cpu,
        cpu_user_usec=cpu * 9 // 10,
        cpu_system_usec=cpu // 10,
        memory_peak_bytes=int(dice.lognormvariate(19, 1.2)),
        memory_kernel_peak_bytes=int(dice.lognormvariate(19.5, 1.2)),
        io_read_bytes=dice.randrange(1 << 30),
        io_write_bytes=dice.randrange(1 << 28),
        processes_peak=dice.randrange(1, 9),
        sources={
            "cpu": "cgroup v2 cpu.stat",
            "memory_peak": "cgroup v2 memory.peak",
            "io": "cgroup v2 io.stat",
        },
    )
    uuid = new_uuid()
    return Record(
        status=status,
        job=Job(
            uuid=uuid,
            argv=(tool, f"case_{place % 977}.py", "--steps", str(dice.randrange(1000))),
            created_at_us=started,
            name=f"case {place % 977}",
            tool=tool,
            script=f"case_{place % 977}.py",
            params={"mesh_size": dice.choice((32, 64, 128)), "step": place % 100},
            cwd="/home/someone/project",
            user="someone",
        ),
        attempt=Attempt(
            started_at_us=started,
            owner=Owner("node1", 4242, 1, "boot"),
            pid=place % 30000,
            accounting="cgroup-v2",
            kernel="6.1.0",
            cpu_count=16,
        ),
        outcome=Outcome(
            status=status,
            ended_at_us=started + int(duration_s * 1e6),
            duration_s=duration_s,
            exit_code=0 if status is Status.SUCCESS else 1,
            reason="exited",
            usage=numbers,
            samples=int(duration_s) + 2,
        ),
    )


def _bytes_a_sample(bench: Workbench) -> Figure:
    """Samples of a real job, in a store of their own and as gzip JSONL."""
    source = bench.path("sampled.db")
    env = {**bench.env, "JOBLENS_STORE": source}
    job = [sys.executable, str(WORKLOADS / "mixed.py"), str(SAMPLING_S)]
    subprocess.run([*JOBLENS, "run", "--interval", "50ms", "--", *job], env=env, check=True)
    store = SqliteStore(source)
    (record,) = store.records(HistoryQuery())
    samples = [sample for _, sample in store.samples(record.job.uuid)]
    store.close()
    plain = b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples)
    zipped = len(gzip.compress(plain, 6))
    ours = _stored_bytes(bench, samples)
    note = f"{ours / len(samples):.1f} bytes against {zipped / len(samples):.1f}, {len(samples)} samples"
    return Figure("bytes a sample on disk against gzip JSONL", ours / zipped, "x", 0.25, note=note)


def _stored_bytes(bench: Workbench, samples: list[Sample]) -> int:
    """Returns the growth of a store file by samples written one by one, as for a job."""
    path = bench.path("grown.db")
    sizes = []
    for written in ([], samples):
        Path(path).unlink(missing_ok=True)
        store, record = SqliteStore(path), _record(1, random.Random(1))
        queued, started, ended = _life(record)
        uuid = record.job.uuid
        store.apply([queued, started])
        for index, sample in enumerate(written):
            store.apply([SamplesTaken(uuid, index, (sample,))])
        store.apply([ended])
        store.vacuum()
        store.close()
        sizes.append(os.path.getsize(path))
    return sizes[1] - sizes[0]
