"""One job at one instant, as raw counters. Rates and percentages are derived in `analysis`."""

from msgspec import Struct
from msgspec.structs import fields


class DeviceIo(Struct, frozen=True):
    """Block I/O of the job on one device ('8:0')."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_ops: int = 0
    write_ops: int = 0
    discard_bytes: int = 0
    discard_ops: int = 0


class Sample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was read at one instant. None: could not be known here; the record says why.

    Counters are since the job's start (the base has been taken off already). `*_avg*` are
    hundredths of a percent, as the kernel prints two decimals. docs/metrics.md explains each field.
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
    # pressure: share of time some / all tasks of the job stood waiting
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
    # I/O: what reached devices, and what went through read/write calls
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
    # the whole machine, kept apart
    host_cpu_busy_usec: int | None = None
    host_cpu_total_usec: int | None = None
    host_memory_used_bytes: int | None = None
    host_memory_total_bytes: int | None = None
    host_load1: int | None = None  # hundredths
    host_load5: int | None = None
    host_load15: int | None = None
    # added later, so at the end of the order
    memory_limit_events: int | None = None  # times the memory limit was reached, reclaim included
    devices: dict[str, DeviceIo] | None = None


# Every field that is one integer, in storage order. New fields go to the end of this order
# (docs/format.md: a block names its columns by their place here).
SAMPLE_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Sample) if field.name != "devices")
DEVICE_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(DeviceIo))
