"""Counters in the form in which Docker tells them, on either kind of control groups."""

from joblens.probes.containers.info import counters_of

V2 = {
    "cpu_stats": {
        "cpu_usage": {
            "total_usage": 2_500_000,
            "usage_in_usermode": 2_000_000,
            "usage_in_kernelmode": 500_000,
        },
        "throttling_data": {"periods": 4, "throttled_periods": 1, "throttled_time": 7_000},
    },
    "memory_stats": {
        "usage": 9_000_000,
        "limit": 67_108_864,
        "stats": {"anon": 1_000_000, "file": 7_000_000, "shmem": 0, "kernel": 300_000, "pgfault": 12},
    },
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 8, "minor": 0, "op": "read", "value": 100},
            {"major": 8, "minor": 0, "op": "write", "value": 40},
            {"major": 8, "minor": 16, "op": "read", "value": 1},
        ]
    },
    "networks": {"eth0": {"rx_bytes": 5, "tx_bytes": 6, "rx_packets": 1, "tx_packets": 2}},
    "pids_stats": {"current": 3},
}


def test_counters_of_an_engine_become_fields_of_a_sample() -> None:
    fields = counters_of(V2)
    assert (fields["cpu_total_usec"], fields["cpu_user_usec"], fields["cpu_throttled_usec"]) == (
        2500,
        2000,
        7,
    )
    assert (fields["memory_anon_bytes"], fields["memory_file_bytes"]) == (1_000_000, 7_000_000)
    assert (fields["io_read_bytes"], fields["io_write_bytes"]) == (101, 40)
    assert (fields["network_rx_bytes"], fields["network_tx_packets"]) == (5, 2)
    assert fields["processes"] == 3


def test_version_1_has_other_words_for_memory() -> None:
    memory = {"usage": 9, "stats": {"total_rss": 4, "total_cache": 5, "rss": 1}}
    fields = counters_of({"memory_stats": memory})
    assert (fields["memory_anon_bytes"], fields["memory_file_bytes"]) == (4, 5)


def test_where_only_the_use_is_reported_cache_that_is_not_in_use_is_taken_off() -> None:
    fields = counters_of({"memory_stats": {"usage": 900, "stats": {"inactive_file": 300}}})
    assert fields["memory_anon_bytes"] == 600


def test_an_answer_without_numbers_gives_no_fields() -> None:
    assert counters_of({}) == {}
    assert (
        counters_of({"cpu_stats": None, "networks": None, "blkio_stats": {"io_serviced_recursive": None}})
        == {}
    )
