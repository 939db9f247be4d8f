import pytest

from joblens.analysis.formats.container import container_stats, size_text, traffic_text
from joblens.model.jobs.job import Usage
from joblens.model.values.units import GIB, MIB
from tests.builders.records import a_sample


def test_the_strings_are_those_people_know() -> None:
    samples = [
        a_sample(0.0, cpu_total_usec=0, host_memory_total_bytes=64 * GIB),
        a_sample(10.0, cpu_total_usec=4_523_000, host_memory_total_bytes=64 * GIB),
    ]
    usage = Usage(
        memory_peak_bytes=int(2.5 * GIB),
        network_rx_bytes=1_200_000,
        network_tx_bytes=850_000,
        io_read_bytes=128_000_000,
        io_write_bytes=64_000_000,
    )
    assert container_stats(samples, usage, 16 * GIB) == {
        "cpu_percent": "45.23",
        "memory_usage": "2.5GiB / 16GiB",
        "memory_percent": "15.62",
        "net_io": "1.2MB / 850KB",
        "block_io": "128MB / 64MB",
    }


def test_a_moment_is_too_short_for_a_share_of_the_cpu() -> None:
    samples = [a_sample(0.0, cpu_total_usec=5_000_000), a_sample(0.004, cpu_total_usec=5_000_000)]
    assert "cpu_percent" not in container_stats(samples, Usage())
    whole = [a_sample(0.02, cpu_total_usec=10_000)]  # counted by the kernel from its beginning
    assert container_stats(whole, Usage(), counted_s=0.02)["cpu_percent"] == "50.00"


def test_without_a_limit_the_machine_is_the_limit() -> None:
    samples = [a_sample(float(second), cpu_total_usec=0, host_memory_total_bytes=GIB) for second in (0, 1)]
    assert container_stats(samples, Usage(memory_peak_bytes=512 * MIB))["memory_usage"] == "512MiB / 1GiB"


def test_what_is_not_known_has_no_entry_and_what_was_never_seen_none_at_all() -> None:
    assert container_stats([a_sample(0.0), a_sample(1.0)], Usage()) == {}
    samples = [a_sample(float(second), cpu_total_usec=second * 10_000) for second in (0, 1)]
    assert container_stats(samples, Usage()) == {"cpu_percent": "1.00"}


def test_cpu_is_of_the_time_in_which_the_container_was_counted() -> None:
    """It was seen from the ninth second, and had begun in the eighth."""
    samples = [a_sample(0.0), a_sample(9.0, cpu_total_usec=900_000), a_sample(10.0, cpu_total_usec=1_000_000)]
    assert container_stats(samples, Usage())["cpu_percent"] == "10.00"
    assert container_stats(samples, Usage(), None, 2.0)["cpu_percent"] == "50.00"


@pytest.mark.parametrize(
    ("size", "binary", "decimal"),
    [(0, "0B", "0B"), (1023, "1023B", "1.02KB"), (1024, "1KiB", "1.02KB"), (1536 * MIB, "1.5GiB", "1.61GB")],
)
def test_sizes_in_both_kinds_of_units(size: int, binary: str, decimal: str) -> None:
    assert (size_text(size), traffic_text(size)) == (binary, decimal)
