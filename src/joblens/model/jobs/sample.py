"""One job at one instant, as raw counters. Rates and percentages are derived in `analysis`."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import fields, replace


class DeviceIo(Struct, frozen=True):
    """Block I/O of the job on one device ('8:0')."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_ops: int = 0
    write_ops: int = 0
    discard_bytes: int = 0
    discard_ops: int = 0


class GpuReading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one instant: the whole device, then the job's part. Shares are hundredths of a percent.

    Constant facts (name, total memory, driver) are in `model.jobs.details.GpuFacts`.
    """

    utilization: int | None = None
    memory_utilization: int | None = None  # share of the time in which its memory was read or written
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    energy_mj: int | None = None  # counter, since the job's start
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    encoder_utilization: int | None = None
    decoder_utilization: int | None = None
    fan_speed: int | None = None  # hundredths of a percent
    ecc_corrected: int | None = None  # counters of the driver, since it was loaded
    ecc_uncorrected: int | None = None
    pcie_rx_bytes_per_s: int | None = None  # as the driver measures it over a moment
    pcie_tx_bytes_per_s: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    throttle_reasons: int | None = None  # bits as NVML names them
    processes: int | None = None  # of all users
    processes_memory_bytes: int | None = None
    job_processes: int | None = None
    job_memory_bytes: int | None = None
    job_utilization: int | None = None
    job_busy_usec: int | None = None  # counter: time the job kept the device busy
    job_encoder_utilization: int | None = None
    job_decoder_utilization: int | None = None


class InterfaceIo(Struct, frozen=True):
    """One network interface of the job's own network namespace (containers)."""

    rx_bytes: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    tx_packets: int = 0
    rx_errors: int = 0
    tx_errors: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0


class Sample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Readings of one instant. None: unknown here; the record says why.

    Counters are since the job's start (the base is subtracted). `*_avg*` are hundredths of a percent, as the
    kernel prints two decimals. docs/metrics.md explains each field.
    """

    at_us: int
    elapsed_us: int
    # CPU
    cpu_total_usec: int | None = None
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None
    cpu_throttled_usec: int | None = None
    # pressure: share of time in which some / all tasks of the job waited
    cpu_some_avg10: int | None = None
    cpu_some_avg60: int | None = None
    cpu_some_avg300: int | None = None
    cpu_some_usec: int | None = None
    cpu_full_avg10: int | None = None
    cpu_full_avg60: int | None = None
    cpu_full_avg300: int | None = None
    cpu_full_usec: int | None = None
    memory_some_avg10: int | None = None
    memory_some_avg60: int | None = None
    memory_some_avg300: int | None = None
    memory_some_usec: int | None = None
    memory_full_avg10: int | None = None
    memory_full_avg60: int | None = None
    memory_full_avg300: int | None = None
    memory_full_usec: int | None = None
    io_some_avg10: int | None = None
    io_some_avg60: int | None = None
    io_some_avg300: int | None = None
    io_some_usec: int | None = None
    io_full_avg10: int | None = None
    io_full_avg60: int | None = None
    io_full_avg300: int | None = None
    io_full_usec: int | None = None
    # memory
    memory_current_bytes: int | None = None
    memory_kernel_peak_bytes: int | None = None
    memory_largest_process_bytes: int | None = None
    memory_anon_bytes: int | None = None
    memory_file_bytes: int | None = None
    memory_kernel_bytes: int | None = None
    memory_shmem_bytes: int | None = None
    memory_swap_bytes: int | None = None
    memory_virtual_bytes: int | None = None
    memory_kernel_stack_bytes: int | None = None
    memory_slab_bytes: int | None = None
    memory_sock_bytes: int | None = None
    memory_file_mapped_bytes: int | None = None
    memory_file_dirty_bytes: int | None = None
    memory_file_writeback_bytes: int | None = None
    memory_limit_bytes: int | None = None
    faults_minor: int | None = None
    faults_major: int | None = None
    oom_events: int | None = None
    oom_kills: int | None = None
    # I/O: by devices, and by read/write calls
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    io_read_ops: int | None = None
    io_write_ops: int | None = None
    io_call_read_bytes: int | None = None
    io_call_write_bytes: int | None = None
    io_call_reads: int | None = None
    io_call_writes: int | None = None
    # processes
    processes: int | None = None
    threads: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    pids_limit: int | None = None
    pids_limit_events: int | None = None
    # the whole machine
    host_cpu_busy_usec: int | None = None
    host_cpu_total_usec: int | None = None
    host_memory_used_bytes: int | None = None
    host_memory_total_bytes: int | None = None
    host_load1: int | None = None  # hundredths
    host_load5: int | None = None
    host_load15: int | None = None
    # added later, so at the end of the order
    memory_limit_events: int | None = None  # times the memory limit was reached, reclaim included
    # network: through the job's sockets, including IP headers
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    network_rx_packets: int | None = None
    network_tx_packets: int | None = None
    network_tcp_rx_bytes: int | None = None
    network_tcp_tx_bytes: int | None = None
    network_udp_rx_bytes: int | None = None
    network_udp_tx_bytes: int | None = None
    network_ipv6_rx_bytes: int | None = None
    network_ipv6_tx_bytes: int | None = None
    # hardware and scheduler counters
    instructions: int | None = None
    cycles: int | None = None
    cpu_migrations: int | None = None
    context_switches: int | None = None
    # detailed memory, if requested
    memory_pss_bytes: int | None = None
    memory_huge_bytes: int | None = None
    # the whole machine again
    host_energy_package_uj: int | None = None  # counters since the job's start; its share is derived
    host_energy_dram_uj: int | None = None
    host_network_rx_bytes: int | None = None
    host_network_tx_bytes: int | None = None
    # reclaimable memory and mapped files
    memory_slab_reclaimable_bytes: int | None = None
    memory_largest_process_file_bytes: int | None = None  # mapped files of the process with the highest mark
    # imported jobs only: sum of the resident sizes of all processes; shared pages count several times
    memory_rss_sum_bytes: int | None = None
    # tables: one entry per device
    devices: dict[str, DeviceIo] | None = None
    gpus: dict[str, GpuReading] | None = None  # by GpuFacts.id; {}: it uses none
    interfaces: dict[str, InterfaceIo] | None = None


# Tables with one entry per device -> type of an entry.
SAMPLE_TABLES: dict[str, type[Struct]] = {"devices": DeviceIo, "gpus": GpuReading, "interfaces": InterfaceIo}
# Every field that is one integer, in storage order. New fields are appended (docs/format.md: a block
# identifies its columns by index).
SAMPLE_COLUMNS: tuple[str, ...] = tuple(
    field.name for field in fields(Sample) if field.name not in SAMPLE_TABLES
)


def sample_from_row(row: Sequence[Any], width: int = len(SAMPLE_COLUMNS)) -> Sample:
    """Returns the sample from a row of `astuple`: `width` columns, then the tables.

    Skips columns and tables of a newer joblens.
    """
    columns = zip(SAMPLE_COLUMNS, row[:width], strict=False)
    tables = zip(SAMPLE_TABLES, row[width:], strict=False)
    return convert({name: value for name, value in (*columns, *tables) if value is not None}, Sample)


def within_64_bits(sample: Sample) -> Sample:
    """Drops numbers that no encoding can hold: no kernel counter exceeds 64 bits.

    A device or an interface with such a number is omitted.
    """
    changed: dict[str, Any] = {name: None for name in SAMPLE_COLUMNS if not _fits(getattr(sample, name))}
    for name in SAMPLE_TABLES:
        table = getattr(sample, name)
        if table:
            entries = {key: _entry_within_64_bits(entry) for key, entry in table.items()}
            changed[name] = {key: entry for key, entry in entries.items() if entry is not None}
    return replace(sample, **changed)


def _entry_within_64_bits(entry: Struct) -> Struct | None:
    wrong = {name: None for name in entry.__struct_fields__ if not _fits(getattr(entry, name))}
    if not wrong:
        return entry
    return replace(entry, **wrong) if isinstance(entry, GpuReading) else None


def _fits(value: int | None) -> bool:
    return value is None or -(1 << 63) <= value < 1 << 63


class SampleSeries(Struct, frozen=True):
    """Some columns of consecutive samples of one job."""

    at_us: list[int]
    columns: dict[str, list[int | None]]
