"""Writes about made-up jobs, for tests of stores."""

from typing import Any

from joblens.model.jobs.details import Details, ThreadTable, ThreadUse
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Status, Usage
from joblens.model.jobs.sample import DeviceIo, GpuReading, InterfaceIo, Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import DetailsTaken, JobEnded, JobQueued, JobStarted, SamplesTaken, Write

NOON_US = 1_763_208_000_000_000
SECOND = 1_000_000
_OWNER = Owner("host", 100, 200, "boot")


def queued(uuid: str = "", *, at_us: int = NOON_US, **fields: Any) -> JobQueued:
    return JobQueued(Job(uuid=uuid or new_uuid(), argv=("true",), created_at_us=at_us, **fields))


def started(uuid: str, *, at_us: int = NOON_US, **fields: Any) -> JobStarted:
    return JobStarted(uuid, Attempt(started_at_us=at_us, owner=_OWNER, **fields))


def ended(
    uuid: str,
    status: Status = Status.SUCCESS,
    *,
    at_us: int = NOON_US + SECOND,
    duration_s: float = 1.0,
    cpu_s: float | None = 0.5,
    memory_bytes: int | None = 1 << 20,
    **fields: Any,
) -> JobEnded:
    cpu_usec = None if cpu_s is None else round(cpu_s * SECOND)
    usage = Usage(cpu_total_usec=cpu_usec, memory_peak_bytes=memory_bytes)
    outcome = Outcome(status=status, ended_at_us=at_us, duration_s=duration_s, usage=usage, **fields)
    return JobEnded(uuid, outcome)


def sample(index: int) -> Sample:
    return Sample(
        at_us=NOON_US + index * SECOND,
        elapsed_us=index * SECOND,
        cpu_total_usec=index * 900_000 + index % 7,
        processes=None if index % 5 == 0 else 3,
        network_rx_bytes=index * 1500,
        devices={"8:0": DeviceIo(read_bytes=index * 4096)},
        gpus=None if index % 3 == 0 else {"GPU-1": GpuReading(power_mw=300_000 + index % 11)},
        interfaces={"eth0": InterfaceIo(rx_bytes=index * 1500)},
    )


def samples(uuid: str, first: int, count: int) -> SamplesTaken:
    return SamplesTaken(uuid, first, tuple(sample(index) for index in range(first, first + count)))


def threads(uuid: str, *, at_us: int = NOON_US, cpu_usec: int = 5, count: int = 1) -> DetailsTaken:
    hottest = tuple(ThreadUse(pid=7, tid=7 + number, name="main") for number in range(count))
    table = ThreadTable(at_us=at_us, threads=hottest, seen=count, cpu_usec=cpu_usec)
    return DetailsTaken(uuid, Details(threads=table))


def whole_job(
    uuid: str = "",
    status: Status = Status.SUCCESS,
    *,
    at_us: int = NOON_US,
    sample_count: int = 0,
    duration_s: float = 1.0,
    cpu_s: float | None = 0.5,
    memory_bytes: int | None = 1 << 20,
    **fields: Any,
) -> list[Write]:
    uuid = uuid or new_uuid()
    end_us = at_us + round(duration_s * SECOND)
    writes: list[Write] = [queued(uuid, at_us=at_us, **fields), started(uuid, at_us=at_us)]
    if sample_count:
        writes.append(samples(uuid, 0, sample_count))
    outcome = ended(uuid, status, at_us=end_us, duration_s=duration_s, cpu_s=cpu_s, memory_bytes=memory_bytes)
    return [*writes, outcome]
