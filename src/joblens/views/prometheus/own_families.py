"""Metrics under joblens' own names: totals and gauges by name and tag; on request, series per job."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from joblens.analysis.numbers.gpu import gpu_memory_bytes
from joblens.analysis.numbers.name_totals import DURATION_BUCKETS_S, Buckets, Totals
from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.views.prometheus.exposition import Families, Family, label_value, labels

_USEC, _UJ, _SHARE = 1e6, 1e6, 10_000.0

# number of usage, metric, extra label, divisor, help
_TOTALS = (
    ("cpu_user_usec", "cpu_seconds_total", 'mode="user"', _USEC, "CPU time of jobs."),
    ("cpu_system_usec", "cpu_seconds_total", 'mode="system"', _USEC, "CPU time of jobs."),
    (
        "io_read_bytes",
        "io_bytes_total",
        'direction="read"',
        1,
        "Bytes that jobs read from and wrote to devices.",
    ),
    (
        "io_write_bytes",
        "io_bytes_total",
        'direction="write"',
        1,
        "Bytes that jobs read from and wrote to devices.",
    ),
    ("network_rx_bytes", "network_bytes_total", 'direction="receive"', 1, "Bytes through sockets of jobs."),
    ("network_tx_bytes", "network_bytes_total", 'direction="transmit"', 1, "Bytes through sockets of jobs."),
    ("energy_package_uj", "energy_joules_total", 'domain="package"', _UJ, "Energy of jobs, their share."),
    ("energy_dram_uj", "energy_joules_total", 'domain="dram"', _UJ, "Energy of jobs, their share."),
    ("gpu_energy_uj", "energy_joules_total", 'domain="gpu"', _UJ, "Energy of jobs, their share."),
    (
        "gpu_busy_usec",
        "gpu_busy_seconds_total",
        "",
        _USEC,
        "Time that jobs kept GPUs busy, all GPUs together.",
    ),
    ("oom_kills", "oom_kills_total", "", 1, "Processes of jobs that the kernel killed: out of memory."),
)


class RunningJob(Struct, frozen=True):
    """A queued or running job with its last sample; `energy_uj`: its shares so far, by number of usage."""

    record: Record
    sample: Sample | None = None
    gpu_sample: Sample | None = None  # the last with readings of GPUs
    gpus: tuple[GpuFacts, ...] = ()
    energy_uj: Mapping[str, int] = {}


def add_totals(families: Families, by_name: Mapping[str, Totals]) -> None:
    """Adds counters by name, since the exporter started."""
    ended = families.counter("joblens_jobs_ended_total", "Jobs that ended, by status.")
    duration = families.histogram("joblens_job_duration_seconds", "Duration of ended jobs.")
    for name, totals in by_name.items():
        label = f'name="{label_value(name)}"'
        for number, metric, extra, divisor, text in _TOTALS:
            value = totals.used.get(number)
            if value is not None:
                family = families.counter(f"joblens_{metric}", text)
                family.add(f"{label},{extra}" if extra else label, value / divisor)
        for status, count in totals.ended.items():
            ended.add(f'{label},status="{status}"', count)
        _add_histogram(duration, label, totals)


def _add_histogram(family: Family, label: str, totals: Totals) -> None:
    count = sum(totals.durations)
    if not count:
        return
    below = 0
    for bound, jobs in zip(DURATION_BUCKETS_S, totals.durations, strict=False):
        below += jobs
        family.add(f'{label},le="{bound}"', below, "_bucket")
    family.add(f'{label},le="+Inf"', count, "_bucket")
    family.add(label, totals.duration_sum_s, "_sum")
    family.add(label, count, "_count")


def add_running(
    families: Families, jobs: Sequence[RunningJob], names: Buckets, tags: Buckets, now_us: int
) -> None:
    """Adds gauges of queued and running jobs, by name and tag."""
    by_name: dict[str, list[RunningJob]] = defaultdict(list)
    by_tag: dict[tuple[str, str], int] = defaultdict(int)
    for job in jobs:
        by_name[names.of(job.record.job.name)].append(job)
        for tag in {tags.of(tag) for tag in job.record.job.tags}:
            by_tag[tag, job.record.status] += 1
    states = families.gauge("joblens_jobs", "Queued and running jobs.")
    for status in (Status.QUEUED, Status.RUNNING):
        for name, group in by_name.items():
            count = sum(job.record.status is status for job in group)
            if count:
                states.add(f'name="{label_value(name)}",state="{status}"', count)
    tagged = families.gauge("joblens_tagged_jobs", "Queued and running jobs with a tag.")
    for (tag, state), count in by_tag.items():
        tagged.add(f'tag="{label_value(tag)}",state="{state}"', count)
    queued = [job.record.job.created_at_us for job in jobs if job.record.status is Status.QUEUED]
    oldest = families.gauge(
        "joblens_oldest_queued_job_age_seconds", "Age of the job that has waited longest; 0: none."
    )
    oldest.add("", max(0.0, (now_us - min(queued)) / _USEC) if queued else 0)
    for name, group in by_name.items():
        _add_group(families, f'name="{label_value(name)}"', group)


def _add_group(families: Families, label: str, group: Sequence[RunningJob]) -> None:
    samples = [job.sample for job in group if job.sample is not None]
    sums: tuple[tuple[str, str, Iterable[float | None]], ...] = (
        ("joblens_memory_bytes", "Memory of running jobs, page cache excluded.", map(_memory, samples)),
        ("joblens_processes", "Processes of running jobs.", (one.processes for one in samples)),
        ("joblens_threads", "Threads of running jobs.", (one.threads for one in samples)),
        ("joblens_gpu_memory_bytes", "GPU memory of running jobs.", (_gpu_memory(job) for job in group)),
        (
            "joblens_requested_cpus",
            "CPUs that running jobs requested.",
            (job.record.job.requirements.cpus for job in group if job.record.status is Status.RUNNING),
        ),
        (
            "joblens_requested_memory_bytes",
            "Memory that running jobs requested.",
            (
                job.record.job.requirements.memory_bytes
                for job in group
                if job.record.status is Status.RUNNING
            ),
        ),
    )
    for metric, text, values in sums:
        known = [value for value in values if value is not None]
        if known:
            families.gauge(metric, text).add(label, sum(known))
    ratios = [ratio for sample in samples if (ratio := _limit_ratio(sample)) is not None]
    if ratios:
        text = "Memory divided by its limit, of the running job that is closest to its limit."
        families.gauge("joblens_memory_limit_ratio", text).add(label, max(ratios))


def _memory(sample: Sample) -> int | None:
    known = unreclaimable_bytes(sample)
    return known if known is not None else sample.memory_current_bytes


def _limit_ratio(sample: Sample) -> float | None:
    used, limit = _memory(sample), sample.memory_limit_bytes
    return used / limit if used is not None and limit else None


def _gpu_memory(job: RunningJob) -> int | None:
    return gpu_memory_bytes(job.gpu_sample) if job.gpu_sample is not None else None


# metric (a counter if it ends with _total), extra label, divisor, help, value
_Number = Callable[[Sample], int | None]
_OF_JOB: tuple[tuple[str, str, float, str, _Number], ...] = (
    ("cpu_seconds_total", 'mode="user"', _USEC, "CPU time of the job.", lambda s: s.cpu_user_usec),
    ("cpu_seconds_total", 'mode="system"', _USEC, "CPU time of the job.", lambda s: s.cpu_system_usec),
    (
        "cpu_throttled_seconds_total",
        "",
        _USEC,
        "Time the job was throttled by its CPU limit.",
        lambda s: s.cpu_throttled_usec,
    ),
    ("memory_bytes", "", 1, "Memory of the job, page cache excluded.", _memory),
    ("memory_peak_bytes", "", 1, "Highest memory charged to the job.", lambda s: s.memory_kernel_peak_bytes),
    ("memory_limit_bytes", "", 1, "Memory limit of the job.", lambda s: s.memory_limit_bytes),
    ("memory_swap_bytes", "", 1, "Memory of the job in swap.", lambda s: s.memory_swap_bytes),
    ("oom_kills_total", "", 1, "Processes of the job killed: out of memory.", lambda s: s.oom_kills),
    ("io_bytes_total", 'direction="read"', 1, "Bytes from and to devices.", lambda s: s.io_read_bytes),
    ("io_bytes_total", 'direction="write"', 1, "Bytes from and to devices.", lambda s: s.io_write_bytes),
    (
        "network_bytes_total",
        'direction="receive"',
        1,
        "Bytes through sockets of the job.",
        lambda s: s.network_rx_bytes,
    ),
    (
        "network_bytes_total",
        'direction="transmit"',
        1,
        "Bytes through sockets of the job.",
        lambda s: s.network_tx_bytes,
    ),
    (
        "pressure_seconds_total",
        'resource="cpu"',
        _USEC,
        "Time some task of the job waited for a resource.",
        lambda s: s.cpu_some_usec,
    ),
    (
        "pressure_seconds_total",
        'resource="memory"',
        _USEC,
        "Time some task of the job waited for a resource.",
        lambda s: s.memory_some_usec,
    ),
    (
        "pressure_seconds_total",
        'resource="io"',
        _USEC,
        "Time some task of the job waited for a resource.",
        lambda s: s.io_some_usec,
    ),
    ("processes", "", 1, "Processes of the job.", lambda s: s.processes),
    ("threads", "", 1, "Threads of the job.", lambda s: s.threads),
)


def add_jobs(families: Families, jobs: Iterable[RunningJob]) -> None:
    """Adds one series per running job and number, with the job's id as a label."""
    info = families.info("joblens_job_info", "Names of a running job.")
    started = families.gauge("joblens_job_start_time_seconds", "Start of the job, in seconds since 1970.")
    for job in jobs:
        record, sample = job.record, job.sample
        if record.attempt is None:
            continue
        label = f'job_id="{record.job.uuid}"'
        info.add(_info_labels(record), 1)
        started.add(label, record.attempt.started_at_us / _USEC)
        if sample is not None:
            _add_numbers(families, label, sample)
        for number, domain in (
            ("energy_package_uj", "package"),
            ("energy_dram_uj", "dram"),
            ("gpu_energy_uj", "gpu"),
        ):
            if (energy_uj := job.energy_uj.get(number)) is not None:
                energy = families.counter("joblens_job_energy_joules_total", "Energy of the job, its share.")
                energy.add(f'{label},domain="{domain}"', energy_uj / _UJ)
        _add_gpus(families, label, job)


def _info_labels(record: Record) -> str:
    job, attempt = record.job, record.attempt
    return labels(
        {
            "job_id": job.uuid,
            "number": "" if record.number is None else str(record.number),
            "name": job.name,
            "tool": job.tool,
            "user": job.user,
            "host": attempt.owner.host if attempt is not None else "",
            "run": job.run.run_uuid if job.run is not None else "",
        }
    )


def _add_numbers(families: Families, label: str, sample: Sample) -> None:
    for metric, extra, divisor, text, number in _OF_JOB:
        if (value := number(sample)) is not None:
            make = families.counter if metric.endswith("_total") else families.gauge
            make(f"joblens_job_{metric}", text).add(
                f"{label},{extra}" if extra else label, value / divisor if divisor != 1 else value
            )


def _add_gpus(families: Families, label: str, job: RunningJob) -> None:
    index = {facts.id: str(facts.index) for facts in job.gpus}
    for device, reading in ((job.gpu_sample.gpus if job.gpu_sample else None) or {}).items():
        where = f'{label},gpu="{label_value(index.get(device, device))}"'
        share = reading.job_utilization if reading.job_utilization is not None else reading.utilization
        busy = families.gauge(
            "joblens_job_gpu_utilization_ratio", "Share of time the GPU worked for the job."
        )
        busy.add_scaled(where, share, _SHARE)
        memory = families.gauge("joblens_job_gpu_memory_bytes", "GPU memory of the job.")
        memory.add(where, reading.job_memory_bytes)
        energy = families.counter(
            "joblens_job_gpu_device_energy_joules_total", "Energy of the job's GPU, since its start."
        )
        energy.add_scaled(where, reading.energy_mj, 1000)
