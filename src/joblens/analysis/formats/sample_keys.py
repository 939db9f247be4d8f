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
# Rates beside the counters: group -> (key, counter), a second.
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
# … and for what it declares but never fills.
ZERO_IS_UNREAD = ("threads", "open_files")
