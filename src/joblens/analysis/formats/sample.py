"""Joblet sample format: a sample as one JSON object, written and read; rows of the Torc time series.
In each group, keys of Joblet come first, additional ones follow. Null replaces Joblet's 0 for 'unlimited' and
for numbers that it never fills.
Missing keys are unknown, unknown keys are ignored; a value of the wrong type is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.formats.gpu import gpus_form, integer_in, number_in, object_in, read_gpus
from joblens.analysis.numbers.rates import (
    cpu_percent,
    growth,
    per_second,
    throttle_percent,
    unreclaimable_bytes,
)
from joblens.model.errors import FormatError, InputError
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import DeviceIo, InterfaceIo, Sample
from joblens.model.values.units import format_instant, parse_instant

# JSON group -> (key, field of Sample). One table for both directions.
COUNTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "cpu": (
        ("usage_usec", "cpu_total_usec"),
        ("user_usec", "cpu_user_usec"),
        ("system_usec", "cpu_system_usec"),
        ("nr_periods", "cpu_periods"),
        ("nr_throttled", "cpu_throttled_periods"),
        ("throttled_usec", "cpu_throttled_usec"),
        ("instructions", "instructions"),
        ("cycles", "cycles"),
        ("migrations", "cpu_migrations"),
        ("context_switches", "context_switches"),
    ),
    "memory": (
        ("current", "memory_current_bytes"),
        ("max", "memory_limit_bytes"),
        ("anon", "memory_anon_bytes"),
        ("file", "memory_file_bytes"),
        ("kernel_stack", "memory_kernel_stack_bytes"),
        ("slab", "memory_slab_bytes"),
        ("sock", "memory_sock_bytes"),
        ("shmem", "memory_shmem_bytes"),
        ("file_mapped", "memory_file_mapped_bytes"),
        ("file_dirty", "memory_file_dirty_bytes"),
        ("file_writeback", "memory_file_writeback_bytes"),
        ("pgfault", "faults_minor"),
        ("pgmajfault", "faults_major"),
        ("oom_events", "oom_events"),
        ("oom_kill", "oom_kills"),
        ("peak", "memory_kernel_peak_bytes"),
        ("kernel", "memory_kernel_bytes"),
        ("swap", "memory_swap_bytes"),
        ("virtual", "memory_virtual_bytes"),
        ("largest_process", "memory_largest_process_bytes"),
        ("limit_events", "memory_limit_events"),
        ("pss", "memory_pss_bytes"),
        ("huge", "memory_huge_bytes"),
        ("slab_reclaimable", "memory_slab_reclaimable_bytes"),
        ("largest_process_file", "memory_largest_process_file_bytes"),
        ("rss_sum", "memory_rss_sum_bytes"),
    ),
    "io": (
        ("total_read_bytes", "io_read_bytes"),
        ("total_write_bytes", "io_write_bytes"),
        ("total_read_ops", "io_read_ops"),
        ("total_write_ops", "io_write_ops"),
        ("call_read_bytes", "io_call_read_bytes"),
        ("call_write_bytes", "io_call_write_bytes"),
        ("call_reads", "io_call_reads"),
        ("call_writes", "io_call_writes"),
    ),
    "network": (
        ("total_rx_bytes", "network_rx_bytes"),
        ("total_tx_bytes", "network_tx_bytes"),
        ("total_rx_packets", "network_rx_packets"),
        ("total_tx_packets", "network_tx_packets"),
        ("tcp_rx_bytes", "network_tcp_rx_bytes"),
        ("tcp_tx_bytes", "network_tcp_tx_bytes"),
        ("udp_rx_bytes", "network_udp_rx_bytes"),
        ("udp_tx_bytes", "network_udp_tx_bytes"),
        ("ipv6_rx_bytes", "network_ipv6_rx_bytes"),
        ("ipv6_tx_bytes", "network_ipv6_tx_bytes"),
    ),
    "process": (
        ("current", "processes"),
        ("max", "pids_limit"),
        ("events", "pids_limit_events"),
        ("threads", "threads"),
        ("open_fds", "open_files"),
        ("max_fds", "open_files_limit"),
    ),
    "energy": (
        ("host_package_uj", "host_energy_package_uj"),
        ("host_dram_uj", "host_energy_dram_uj"),
    ),
    "host": (
        ("cpu_busy_usec", "host_cpu_busy_usec"),
        ("cpu_total_usec", "host_cpu_total_usec"),
        ("memory_used", "host_memory_used_bytes"),
        ("memory_total", "host_memory_total_bytes"),
        ("network_rx_bytes", "host_network_rx_bytes"),
        ("network_tx_bytes", "host_network_tx_bytes"),
    ),
}
# Percentages that samples hold as hundredths.
HUNDREDTHS: dict[str, tuple[tuple[str, str], ...]] = {
    **{
        group: tuple(
            (f"pressure_{kind}_{seconds}", f"{group}_{kind}_avg{seconds}")
            for kind in ("some", "full")
            for seconds in (10, 60, 300)
        )
        for group in ("cpu", "memory", "io")
    },
    "host": (("load1", "host_load1"), ("load5", "host_load5"), ("load15", "host_load15")),
}
PRESSURE_TOTALS: dict[str, tuple[tuple[str, str], ...]] = {
    group: tuple((f"pressure_{kind}_total_usec", f"{group}_{kind}_usec") for kind in ("some", "full"))
    for group in ("cpu", "memory", "io")
}
DEVICE_KEYS = (
    ("rbytes", "read_bytes"),
    ("wbytes", "write_bytes"),
    ("rios", "read_ops"),
    ("wios", "write_ops"),
    ("dbytes", "discard_bytes"),
    ("dios", "discard_ops"),
)
INTERFACE_KEYS = tuple(
    (f"{way}_{what}",) * 2 for what in ("bytes", "packets", "errors", "dropped") for way in ("rx", "tx")
)
# Rates of counters, per second: group -> (key, counter).
RATES: dict[str, tuple[tuple[str, str], ...]] = {
    "io": (
        ("read_bps", "io_read_bytes"),
        ("write_bps", "io_write_bytes"),
        ("read_iops", "io_read_ops"),
        ("write_iops", "io_write_ops"),
    ),
    "network": (("rx_bps", "network_rx_bytes"), ("tx_bps", "network_tx_bytes")),
}
# Joblet writes 0 here for 'no limit' …
ZERO_IS_NO_LIMIT = ("memory_limit_bytes", "pids_limit", "open_files_limit")
# … and for fields that it declares but never fills.
ZERO_IS_UNREAD = ("threads", "open_files")


TimeSeriesRow = tuple[int, float, int, int]  # at_us, cpu_percent, memory_bytes, num_processes


def to_sample_object(
    sample: Sample, previous: Sample | None, record: Record, gpus: Sequence[GpuFacts] = ()
) -> dict[str, Any]:
    """Returns a sample object. Rates are since the previous sample; the first has none. `gpus`: facts about
    the devices (`Details.gpus`)."""
    groups: dict[str, Any] = {name: _group_form(sample, previous, name) for name in COUNTERS}
    cpu, memory, io, network = groups["cpu"], groups["memory"], groups["io"], groups["network"]
    cpu["usage_percent"] = None if previous is None else cpu_percent(previous, sample)
    cpu["throttle_percent"] = None if previous is None else throttle_percent(previous, sample)
    cpu["instructions_per_cycle"] = _instructions_per_cycle(sample, previous)
    memory["usage_percent"] = _limit_percent(sample)
    memory["unreclaimable"] = unreclaimable_bytes(sample)
    io["devices"] = _entries_form(sample.devices, "device", DEVICE_KEYS)
    for total in ("discard_bytes", "discard_ops"):
        io[f"total_{total}"] = _total(sample.devices, total)
    network["interfaces"] = _entries_form(sample.interfaces, "interface", INTERFACE_KEYS)
    for total in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
        network[f"total_{total}"] = _total(sample.interfaces, total)
    groups["energy"].update(_watts(sample, previous))
    head = {
        "job_id": record.job.uuid,
        "timestamp": format_instant(sample.at_us),
        "sample_interval": _interval_ns(sample, previous, record),
        "cgroup_path": _cgroup_path(record),
        "limits": _limits_form(record),
    }
    parts = {name: groups[name] for name in ("cpu", "memory", "io", "network", "process")}
    rest = {"energy": groups["energy"], "host": groups["host"], "elapsed_us": sample.elapsed_us}
    return {**head, **parts, "gpu": gpus_form(sample, previous, gpus), **rest}


def from_sample_object(fields: Any, previous: Sample | None = None) -> Sample:
    """Reads a sample in the Joblet format: the full one (from joblens or Joblet's live stream), or one of the
    short ones in Joblet's files and protocol. `previous`: the previous sample of the file; elapsed time
    counts from the first, and CPU shares of short formats are summed to a counter. Raises FormatError."""
    if not isinstance(fields, dict):
        raise FormatError("a sample is a JSON object")
    at_us = _timestamp(fields)
    elapsed_us = integer_in(fields, "elapsed_us")
    if elapsed_us is None:
        elapsed_us = 0 if previous is None else previous.elapsed_us + max(0, at_us - previous.at_us)
    if isinstance(fields.get("cpu"), dict):
        numbers = _full_numbers(fields)
    else:
        numbers = _short_numbers(fields, elapsed_us, previous)
    return Sample(at_us=at_us, elapsed_us=elapsed_us, **numbers)


def is_summed_rss(samples: Sequence[Sample]) -> bool:
    """Returns whether the samples came from a time series of Torc."""
    return any(sample.memory_rss_sum_bytes is not None for sample in samples)


def time_series_rows(samples: Sequence[Sample], record: Record) -> list[TimeSeriesRow]:
    """Returns the rows of a job in Torc's job_resource_samples: samples while it ran, with CPU since the
    previous one. The first sample, before the program, and the last, after its end, are not rows, so that the
    average of the rows is that of the job. A job without samples in between is one row with its average CPU
    and its peak memory. Rows with unknown numbers are omitted, because Torc's readers do not accept NULL."""
    if is_summed_rss(samples):  # every row of such a file was taken while the job ran
        running, before = samples, Sample(at_us=0, elapsed_us=0, cpu_total_usec=0)
    elif running := _while_running(samples):
        before = samples[0]
    else:
        return _only_row(samples, record)
    rows: list[TimeSeriesRow] = []
    for sample in running:
        percent = cpu_percent(before, sample) if sample.elapsed_us > before.elapsed_us else 0.0
        summed = sample.memory_rss_sum_bytes
        memory = unreclaimable_bytes(sample) if summed is None else summed
        rows += _complete(sample.at_us, percent, memory, sample.processes)
        before = before if sample.cpu_total_usec is None else sample
    return rows


def _while_running(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Returns samples without the first, and without those that found no process."""
    end = len(samples) - 1
    while end > 1 and samples[end - 1].processes == 0:
        end -= 1
    return samples[1:end]


def _only_row(samples: Sequence[Sample], record: Record) -> list[TimeSeriesRow]:
    if len(samples) < 2 or record.outcome is None:
        return []
    usage, last = record.outcome.usage, samples[-1]
    percent = None
    if usage.cpu_total_usec is not None and last.elapsed_us > 0:
        percent = 100.0 * usage.cpu_total_usec / last.elapsed_us
    return _complete(last.at_us, percent, usage.memory_peak_bytes, usage.processes_peak)


def _complete(
    at_us: int, percent: float | None, memory_bytes: int | None, processes: int | None
) -> list[TimeSeriesRow]:
    if percent is None or memory_bytes is None or processes is None:
        return []
    return [(at_us, percent, memory_bytes, processes)]


def _group_form(sample: Sample, previous: Sample | None, group: str) -> dict[str, Any]:
    form = {key: getattr(sample, field) for key, field in COUNTERS[group]}
    for key, field in HUNDREDTHS.get(group, ()):
        hundredths = getattr(sample, field)
        form[key] = None if hundredths is None else hundredths / 100
    for key, field in PRESSURE_TOTALS.get(group, ()):
        form[key] = getattr(sample, field)
    for key, counter in RATES.get(group, ()):
        form[key] = None if previous is None else per_second(previous, sample, counter)
    return form


def _instructions_per_cycle(sample: Sample, previous: Sample | None) -> float | None:
    if previous is None:
        return None
    instructions, cycles = growth(previous, sample, "instructions"), growth(previous, sample, "cycles")
    return None if instructions is None or not cycles else instructions / cycles


def _watts(sample: Sample, previous: Sample | None) -> dict[str, float | None]:
    """Returns the power of the whole machine since the previous sample."""
    watts: dict[str, float | None] = {}
    for part in ("package", "dram"):
        rate = None if previous is None else per_second(previous, sample, f"host_energy_{part}_uj")
        watts[f"host_{part}_watts"] = None if rate is None else rate / 1_000_000
    return watts


def _limit_percent(sample: Sample) -> float | None:
    if sample.memory_current_bytes is None or not sample.memory_limit_bytes:
        return None
    return 100.0 * sample.memory_current_bytes / sample.memory_limit_bytes


def _entries_form(
    entries: Mapping[str, Struct] | None, kind: str, keys: Sequence[tuple[str, str]]
) -> dict[str, Any] | None:
    if entries is None:
        return None
    return {
        name: {kind: name, **{key: getattr(entry, field) for key, field in keys}}
        for name, entry in entries.items()
    }


def _total(entries: Mapping[str, Struct] | None, field: str) -> int | None:
    return None if entries is None else sum(getattr(entry, field) for entry in entries.values())


def _interval_ns(sample: Sample, previous: Sample | None, record: Record) -> int:
    if previous is None:
        return round(record.job.interval_s * 1_000_000_000)
    return max(0, sample.elapsed_us - previous.elapsed_us) * 1000


def _cgroup_path(record: Record) -> str:
    groups = {} if record.attempt is None else record.attempt.groups
    return groups.get("unified") or next(iter(groups.values()), "")


def _limits_form(record: Record) -> dict[str, int | None]:
    asked = record.job.requirements if record.job.enforce else None
    cpus = None if asked is None else asked.cpus
    return {
        "cpu": None if cpus is None else round(100 * cpus),
        "memory": None if asked is None else asked.memory_bytes,
        "io": None,
    }


def _full_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    is_ours = "elapsed_us" in fields
    numbers: dict[str, Any] = {}
    for group, pairs in COUNTERS.items():
        part = object_in(fields, group)
        for key, field in (*pairs, *PRESSURE_TOTALS.get(group, ())):
            number = integer_in(part, key)
            zero_is_none = field in ZERO_IS_NO_LIMIT or (field in ZERO_IS_UNREAD and not is_ours)
            if number is not None and not (number == 0 and zero_is_none):
                numbers[field] = number
        for key, field in HUNDREDTHS.get(group, ()):
            value = number_in(part, key)
            if value is not None:
                numbers[field] = round(value * 100)
    devices = object_in(fields, "io").get("devices")
    if devices is not None:
        numbers["devices"] = _entries(devices, "devices", DeviceIo, DEVICE_KEYS)
    interfaces = object_in(fields, "network").get("interfaces")
    if interfaces is not None:
        numbers["interfaces"] = _entries(interfaces, "interfaces", InterfaceIo, INTERFACE_KEYS)
    if fields.get("gpu") is not None:
        numbers["gpus"] = read_gpus(fields["gpu"], is_ours=is_ours)
    return numbers


def _entries(
    entries: Any, what: str, kind: type[DeviceIo | InterfaceIo], keys: Sequence[tuple[str, str]]
) -> dict[str, DeviceIo | InterfaceIo]:
    if not isinstance(entries, dict):
        raise FormatError(f"'{what}' is not an object")
    return {
        name: kind(**{field: integer_in(object_in(entries, name), key) or 0 for key, field in keys})
        for name in entries
    }


def _short_numbers(fields: dict[str, Any], elapsed_us: int, previous: Sample | None) -> dict[str, Any]:
    stored = object_in(fields, "data")  # Joblet's files omit zeros
    if stored:
        cores = number_in(stored, "cpu_usage") or 0.0
        disk = object_in(stored, "disk_io")
        numbers: dict[str, int | None] = {
            "memory_current_bytes": integer_in(stored, "memory_usage") or 0,
            "io_read_bytes": integer_in(disk, "read_bytes") or 0,
            "io_write_bytes": integer_in(disk, "write_bytes") or 0,
            "io_read_ops": integer_in(disk, "read_ops") or 0,
            "io_write_ops": integer_in(disk, "write_ops") or 0,
        }
    elif "memory_bytes" in fields or "cpu_percent" in fields:  # Joblet's protocol
        cores = (number_in(fields, "cpu_percent") or 0.0) / 100
        numbers = {
            "memory_current_bytes": integer_in(fields, "memory_bytes") or 0,
            "memory_limit_bytes": integer_in(fields, "memory_limit") or None,
            "io_read_bytes": integer_in(fields, "disk_read_bytes") or 0,
            "io_write_bytes": integer_in(fields, "disk_write_bytes") or 0,
            "network_rx_bytes": integer_in(fields, "net_recv_bytes") or None,  # 0 if not counted
            "network_tx_bytes": integer_in(fields, "net_sent_bytes") or None,
        }
    else:
        raise FormatError("the sample has neither 'cpu', 'data' nor 'memory_bytes'")
    before = previous.cpu_total_usec if previous is not None else 0
    passed_us = elapsed_us - (0 if previous is None else previous.elapsed_us)
    numbers["cpu_total_usec"] = (before or 0) + round(cores * passed_us)
    return numbers


def _timestamp(fields: dict[str, Any]) -> int:
    value = fields.get("timestamp")
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value // 1000  # nanoseconds
    if isinstance(value, str):
        try:
            return parse_instant(_microseconds_only(value), 0)
        except (InputError, OverflowError):
            pass
    raise FormatError(f"'timestamp' is {value!r}, neither an ISO 8601 time nor nanoseconds")


def _microseconds_only(text: str) -> str:
    """Truncates decimals: Go writes up to nine, Python reads six."""
    head, dot, tail = text.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return head + dot + tail[: min(digits, 6)].ljust(6, "0") + tail[digits:] if dot else text
