"""The keys of the Joblet form beside the fields of Sample: one table for writing and for reading."""

# JSON group -> (key, field of Sample). One table for both directions.
COUNTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "cpu": (
        ("usage_usec", "cpu_total_usec"),
        ("user_usec", "cpu_user_usec"),
        ("system_usec", "cpu_system_usec"),
        ("nr_periods", "cpu_periods"),
        ("nr_throttled", "cpu_throttled_periods"),
        ("throttled_usec", "cpu_throttled_usec"),
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
    "process": (
        ("current", "processes"),
        ("max", "pids_limit"),
        ("events", "pids_limit_events"),
        ("threads", "threads"),
        ("open_fds", "open_files"),
        ("max_fds", "open_files_limit"),
    ),
    "host": (
        ("cpu_busy_usec", "host_cpu_busy_usec"),
        ("cpu_total_usec", "host_cpu_total_usec"),
        ("memory_used", "host_memory_used_bytes"),
        ("memory_total", "host_memory_total_bytes"),
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
# Joblet writes 0 here for 'no limit' …
ZERO_IS_NO_LIMIT = ("memory_limit_bytes", "pids_limit", "open_files_limit")
# … and for what it declares but never fills.
ZERO_IS_UNREAD = ("threads", "open_files")
