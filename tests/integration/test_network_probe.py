"""Packets counted at real groups, against what the jobs are known to have sent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.probes.network import cgroup_network
from joblens.probes.network.cgroup_network import (
    FIELDS,
    MAY_NOT,
    NOT_COUNTED,
    CgroupNetworkProbe,
    count_as_guest,
    count_here,
    go_on_counting,
)
from tests.conftest import wait_until
from tests.integration.cgroup_jobs import make_groups, start_in
from tests.integration.network_jobs import (
    IP4,
    IP6,
    LOOPBACK_UP,
    TELL_LOOPBACK,
    UDP_HEADER,
    has_ipv6,
    packets_or_skip,
    run_in,
    tcp,
    udp,
)

pytestmark = pytest.mark.cgroup


@pytest.fixture(scope="module", autouse=True)
def _packets_are_counted() -> None:
    packets_or_skip()


@pytest.fixture
def groups() -> Iterator[JobGroups]:
    yield from make_groups()


@pytest.fixture
def group_dir(groups: JobGroups) -> str:
    return groups.paths["unified"]


@pytest.fixture
def probe(group_dir: str) -> Iterator[CgroupNetworkProbe]:
    probe = CgroupNetworkProbe(group_dir)
    yield probe
    probe.close()


def attached(group_dir: str) -> int:
    group = os.open(group_dir, os.O_RDONLY)
    try:
        return sum(
            len(cgroup_network.attached_programs(group, way))
            for way in (cgroup_network.INGRESS, cgroup_network.EGRESS)
        )
    finally:
        os.close(group)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_datagrams_are_counted_to_the_byte_with_their_headers(
    groups: JobGroups, probe: CgroupNetworkProbe
) -> None:
    run_in(groups, udp(count=50, size=100))
    whole = 50 * (100 + UDP_HEADER + IP4)
    for way in ("rx", "tx"):
        assert probe.read()[f"network_{way}_bytes"] == whole
        assert probe.read()[f"network_{way}_packets"] == 50
        assert probe.read()[f"network_udp_{way}_bytes"] == whole
        assert probe.read()[f"network_tcp_{way}_bytes"] == 0
        assert probe.read()[f"network_ipv6_{way}_bytes"] == 0


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_datagrams_over_ipv6_are_counted_as_such(groups: JobGroups, probe: CgroupNetworkProbe) -> None:
    run_in(groups, udp(count=10, size=100, address="::1") + udp(count=3, size=7))
    reading = probe.read()
    assert reading["network_ipv6_rx_bytes"] == 10 * (100 + UDP_HEADER + IP6)
    assert reading["network_rx_bytes"] - reading["network_ipv6_rx_bytes"] == 3 * (7 + UDP_HEADER + IP4)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_tcp_transfer_is_what_the_namespaces_own_loopback_carried(
    groups: JobGroups, probe: CgroupNetworkProbe, address: str
) -> None:
    if ":" in address and not has_ipv6():
        pytest.skip("no IPv6 here")
    code = LOOPBACK_UP + tcp(5_000_000, address) + TELL_LOOPBACK
    alone = start_in(groups, "unshare", "-n", sys.executable, "-I", "-S", "-c", code, stdout=subprocess.PIPE)
    out, _ = alone.communicate(timeout=30)
    carried, packets = map(int, out.split())
    reading = probe.read()
    # The kernel may still exchange a few packets when both ends are closed, after the numbers were told.
    for way in ("rx", "tx"):
        assert 0 <= reading[f"network_{way}_packets"] - packets <= 6
        assert 0 <= reading[f"network_{way}_bytes"] - carried <= 6 * 80
        assert reading[f"network_tcp_{way}_bytes"] == reading[f"network_{way}_bytes"]


def test_what_runs_in_groups_below_counts_too(groups: JobGroups, probe: CgroupNetworkProbe) -> None:
    below = f"{groups.paths['unified']}/container"
    os.mkdir(below)
    nested = JobGroups(groups.kind, {"unified": below})
    run_in(nested, udp(count=4, size=50))
    assert probe.read()["network_tx_packets"] == 4
    os.rmdir(below)


def test_what_runs_elsewhere_does_not_count(probe: CgroupNetworkProbe) -> None:
    for other in make_groups():
        run_in(other, udp(count=5, size=10))
    assert set(probe.read().values()) == {0}


def test_another_process_goes_on_with_the_same_counters(groups: JobGroups, group_dir: str) -> None:
    first = CgroupNetworkProbe(group_dir)
    run_in(groups, udp(count=5, size=10))
    first.close()
    second = CgroupNetworkProbe(group_dir, go_on_counting)
    run_in(groups, udp(count=5, size=10))
    assert second.read()["network_tx_packets"] == 10
    assert attached(group_dir) == 2
    second.close()


def test_a_group_that_nobody_counted_from_the_start_has_no_numbers_but_the_reason(group_dir: str) -> None:
    probe = CgroupNetworkProbe(group_dir, go_on_counting)
    assert probe.read() == {}
    assert dict(probe.unknown) == dict.fromkeys(FIELDS, NOT_COUNTED)
    probe.close()


def test_two_can_count_at_one_group(groups: JobGroups, group_dir: str, probe: CgroupNetworkProbe) -> None:
    run_in(groups, udp(count=1, size=10))
    guest = CgroupNetworkProbe(group_dir, count_as_guest)
    run_in(groups, udp(count=2, size=10))
    assert (probe.read()["network_tx_packets"], guest.read()["network_tx_packets"]) == (3, 2)
    guest.close()
    assert attached(group_dir) == 2


def test_a_guest_that_is_killed_leaves_nothing_at_the_group(group_dir: str) -> None:
    code = (
        "import sys, time\n"
        "from joblens.probes.network.cgroup_network import CgroupNetworkProbe, count_as_guest\n"
        f"probe = CgroupNetworkProbe({group_dir!r}, count_as_guest)\nprint(flush=True)\ntime.sleep(60)\n"
    )
    guest = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert guest.stdout is not None
    guest.stdout.readline()
    assert attached(group_dir) == 2
    guest.send_signal(signal.SIGKILL)
    guest.wait()
    guest.stdout.close()
    wait_until(lambda: attached(group_dir) == 0, what="the programs to go")


def test_a_thousand_jobs_leave_no_descriptor_and_no_memory_open(group_dir: str) -> None:
    CgroupNetworkProbe(group_dir, count_as_guest).close()
    before, mapped = open_descriptors(), _bpf_mappings()
    for number in range(1000):
        path = f"{group_dir}/{number}"
        os.mkdir(path)
        probe = CgroupNetworkProbe(path, count_here)
        probe.close_descriptor()
        assert probe.sources, probe.unknown
        assert probe.read()["network_rx_bytes"] == 0
        probe.close()
        os.rmdir(path)
    assert (open_descriptors(), _bpf_mappings()) == (before, mapped)


def test_a_group_that_is_gone_is_a_reason_not_an_error(group_dir: str) -> None:
    probe = CgroupNetworkProbe(f"{group_dir}/gone")
    assert probe.read() == {}
    assert "No such file" in probe.unknown["network_rx_bytes"]


def test_without_the_capability_the_reason_says_what_is_needed(tmp_path: str, group_dir: str) -> None:
    os.makedirs(f"{tmp_path}/self")
    with open(f"{tmp_path}/self/status", "w") as status:
        status.write("Name:\tx\nCapEff:\t0000000000000000\n")
    probe = CgroupNetworkProbe(group_dir, proc=str(tmp_path))
    assert dict(probe.unknown) == dict.fromkeys(FIELDS, MAY_NOT)
    assert attached(group_dir) == 0


def _bpf_mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("bpf-map" in line for line in maps)
