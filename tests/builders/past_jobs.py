"""A store with a past: three ended jobs and, where asked for, one that is running."""

import os
import random
from pathlib import Path

from joblens.model.jobs.job import (
    Attempt,
    Finding,
    Job,
    Outcome,
    Owner,
    Record,
    Requirements,
    Severity,
    Status,
    Usage,
)
from joblens.model.jobs.sample import DeviceIo, Sample
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from joblens.stores.sqlite import SqliteStore
from tests.builders import records

START_US = records.START_US
POISSON = "3f8a21b2-c4d5-4e6f-a7b8-c9d0e1f2a3b4"
CAVITY = "7b9e3f1a-8c2d-4b1e-9f00-aa11bb22cc33"
LAMMPS = "3f8b0000-1111-4222-8333-444455556666"
RUNNING = "aaaaaaaa-1111-4222-8333-444455556666"
MIB = 1024**2


def samples(count: int, *, start_us: int = START_US) -> tuple[Sample, ...]:
    """A job that works harder and harder, with a spike in the middle."""
    chance = random.Random(7)
    result = []
    cpu = read = write = 0
    for index in range(count):
        cpu += round(chance.uniform(300_000, 1_500_000)) if index else 0
        read += round(chance.uniform(0, 4) * MIB) if index else 0
        write += MIB if index % 5 == 4 else 0
        memory = (100 + 4 * index + (300 if count // 3 < index < count // 2 else 0)) * MIB
        result.append(
            Sample(
                at_us=start_us + index * 1_000_000,
                elapsed_us=index * 1_000_000,
                cpu_total_usec=cpu,
                cpu_user_usec=cpu * 9 // 10,
                cpu_system_usec=cpu - cpu * 9 // 10,
                cpu_periods=index * 10,
                cpu_throttled_periods=index,
                cpu_throttled_usec=index * 1000,
                cpu_some_avg10=125,
                memory_current_bytes=memory + 64 * MIB,
                memory_kernel_peak_bytes=memory + 80 * MIB,
                memory_anon_bytes=memory,
                memory_file_bytes=64 * MIB,
                memory_limit_bytes=1024 * MIB,
                faults_minor=index * 100,
                faults_major=0,
                oom_events=0,
                oom_kills=0,
                io_read_bytes=read,
                io_write_bytes=write,
                io_read_ops=index * 10,
                io_write_ops=index * 2,
                processes=3,
                threads=12,
                open_files=45,
                open_files_limit=1024,
                pids_limit=100,
                pids_limit_events=0,
                host_memory_used_bytes=4 * 1024 * MIB,
                host_memory_total_bytes=24 * 1024 * MIB,
                host_load1=150,
                devices={"8:0": DeviceIo(read_bytes=read, write_bytes=write)},
            )
        )
    return tuple(result)


def attempt(*, start_us: int = START_US, logs_dir: str = "", pid: int = 4242) -> Attempt:
    return Attempt(
        started_at_us=start_us,
        owner=Owner(host="node7", pid=1, start_ticks=1, boot_id="elsewhere"),
        pid=pid,
        accounting="cgroup-hybrid",
        enforced_by={"memory": "cgroup memory.limit_in_bytes"},
        logs_dir=logs_dir,
        kernel="6.18.0",
        cpu_count=2,
        memory_total_bytes=24 * 1024 * MIB,
    )


def poisson(logs_dir: str = "") -> list[Write]:
    job = Job(
        uuid=POISSON,
        argv=("python", "poisson.py", "--mesh", "64 x 64"),
        created_at_us=START_US,
        name="poisson",
        tool="fenicsx",
        script="poisson.py",
        params={"mesh_size": 64, "iterations": 1000},
        tags=("nightly", "grid=64"),
        cwd="/data",
        user="ada",
        requirements=Requirements(cpus=2, memory_bytes=1024 * MIB, timeout_s=600),
    )
    outcome = Outcome(
        status=Status.SUCCESS,
        ended_at_us=START_US + 330_123_456,
        duration_s=330.123456,
        exit_code=0,
        reason="exited",
        has_result=True,
        usage=Usage(
            cpu_user_usec=285_450_000,
            cpu_system_usec=12_340_000,
            cpu_total_usec=297_790_000,
            memory_peak_bytes=round(2048.56 * MIB),
            memory_kernel_peak_bytes=3000 * MIB,
            io_read_bytes=150 * MIB,
            io_write_bytes=50 * MIB,
            processes_peak=3,
            sources={"cpu": "cgroup v2 cpu.stat", "memory_peak": "memory.stat", "io": "/proc/PID/io"},
            unknown={"oom_kills": "the memory controller has no events file here"},
            lower_bounds=("memory_peak_bytes",),
        ),
        findings=(
            Finding("memory-oversized", Severity.INFO, "It asked for more than it needed.", "Ask for less."),
        ),
        samples=60,
        sampling_interval_s=1.0,
    )
    taken = SamplesTaken(POISSON, 0, samples(60))
    return [
        JobQueued(job),
        JobStarted(POISSON, attempt(logs_dir=logs_dir)),
        taken,
        JobEnded(POISSON, outcome),
    ]


def lammps() -> list[Write]:
    """Failed, five minutes earlier; its UUID begins like poisson's."""
    start_us = START_US - 300_000_000
    job = Job(
        uuid=LAMMPS,
        argv=("lmp", "-in", "example.lammps"),
        created_at_us=start_us,
        external_id="my-task-123",
        name="melt",
        tool="lammps",
        script="example.lammps",
        user="bob",
    )
    outcome = Outcome(
        status=Status.FAILED,
        ended_at_us=start_us + 45_670_000,
        duration_s=45.67,
        exit_code=1,
        reason="exited",
        error="Simulation failed with non-zero exit code",
        usage=Usage(
            cpu_user_usec=40_120_000,
            cpu_system_usec=2_210_000,
            cpu_total_usec=42_330_000,
            memory_peak_bytes=round(512.34 * MIB),
        ),
        stderr_bytes=31,
        stderr_tail="ERROR: Lost atoms\nLast command: run\n",
    )
    return [JobQueued(job), JobStarted(LAMMPS, attempt(start_us=start_us)), JobEnded(LAMMPS, outcome)]


def cavity() -> list[Write]:
    """Never started."""
    start_us = START_US - 600_000_000
    job = Job(uuid=CAVITY, argv=("simpleFoam",), created_at_us=start_us, name="cavity", tool="openfoam")
    outcome = Outcome(
        status=Status.ERROR,
        ended_at_us=start_us,
        duration_s=0.0,
        exit_code=127,
        reason="not-started",
        error="the command 'simpleFoam' does not exist",
    )
    return [JobQueued(job), JobEnded(CAVITY, outcome)]


def running(logs_dir: str = "") -> list[Write]:
    """Under way on another machine, so that nobody here takes it for dead."""
    now_us = START_US + 400_000_000
    job = Job(uuid=RUNNING, argv=("sleep", "60"), created_at_us=now_us, name="sleeper", tool="sleep")
    started = JobStarted(RUNNING, attempt(start_us=now_us, logs_dir=logs_dir))
    return [JobQueued(job), started, SamplesTaken(RUNNING, 0, samples(5, start_us=now_us))]


def fill(path: Path, logs: Path | None = None) -> None:
    """The three ended jobs; with `logs`, what poisson printed is there too."""
    os.makedirs(path.parent, exist_ok=True)
    folder = ""
    if logs is not None:
        folder = str(logs / POISSON)
        os.makedirs(folder)
        Path(folder, "stdout.log").write_text("one\ntwo\nthree\n")
        Path(folder, "stderr.log").write_text("warning: coarse mesh\n")
    store = SqliteStore(str(path))
    store.apply([*cavity(), *lammps(), *poisson(folder)])
    store.close()


def record_of(writes: list[Write], number: int) -> Record:
    """The record a store makes of these writes."""
    job = next(write.job for write in writes if isinstance(write, JobQueued))
    started = [write.attempt for write in writes if isinstance(write, JobStarted)]
    ended = [write.outcome for write in writes if isinstance(write, JobEnded)]
    status = ended[0].status if ended else Status.RUNNING
    return Record(
        number=number,
        status=status,
        job=job,
        attempt=started[0] if started else None,
        outcome=ended[0] if ended else None,
    )
