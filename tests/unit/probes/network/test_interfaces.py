import errno
import os
from pathlib import Path

import pytest

from joblens.model.jobs.sample import InterfaceIo
from joblens.probes.network.cgroup_network import (
    NOT_ALLOWED,
    SAME_NETWORK,
    InterfacesProbe,
    interfaces_since,
    parse_interfaces,
)
from joblens.probes.proc.kernel_files import parse_host_network

TWO = b"""Inter-|   Receive                                  |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo:  1000   10    0    0    0     0          0         0     1000   10    0    0    0     0   0   0
eth0.1:123456  789    1    2    0     0          0         0   654321  987    3    4    0     0   0   0
"""
ETH = InterfaceIo(
    rx_bytes=123456,
    tx_bytes=654321,
    rx_packets=789,
    tx_packets=987,
    rx_errors=1,
    tx_errors=3,
    rx_dropped=2,
    tx_dropped=4,
)


def test_every_interface_has_its_bytes_packets_errors_and_drops() -> None:
    found = parse_interfaces(TWO)
    assert list(found) == ["lo", "eth0.1"]
    assert found["eth0.1"] == ETH
    assert found["lo"] == InterfaceIo(rx_bytes=1000, tx_bytes=1000, rx_packets=10, tx_packets=10)


def test_the_machines_traffic_leaves_loopback_out() -> None:
    assert parse_host_network(TWO) == {"host_network_rx_bytes": 123456, "host_network_tx_bytes": 654321}


def test_what_interfaces_counted_before_is_taken_off_and_new_ones_begin_at_nothing() -> None:
    before = {"lo": InterfaceIo(rx_bytes=400, rx_packets=4)}
    since = interfaces_since(parse_interfaces(TWO), before)
    assert (since["lo"].rx_bytes, since["lo"].rx_packets, since["lo"].tx_bytes) == (600, 6, 1000)
    assert since["eth0.1"] == ETH


def proc_with(folder: Path, **namespaces: str) -> str:
    for pid, namespace in namespaces.items():
        process = folder / pid.removeprefix("p")
        (process / "ns").mkdir(parents=True)
        (process / "net").mkdir()
        target = folder / f"namespace-{namespace}"
        target.touch()
        (process / "ns" / "net").symlink_to(target)
        (process / "net" / "dev").write_bytes(TWO)
    return str(folder)


def test_a_job_on_the_machines_network_has_no_interfaces_and_says_why(tmp_path: Path) -> None:
    probe = InterfacesProbe(lambda: [7], proc=proc_with(tmp_path, self="a", p7="a"))
    assert probe.read() == {}
    assert probe.unknown == {"interfaces": SAME_NETWORK}


def test_a_process_that_may_not_be_looked_at_is_not_said_to_be_on_the_machines_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = proc_with(tmp_path, self="a", p7="b", p8="b")
    really = os.stat

    def refuse(path: str) -> os.stat_result:
        if "/7/" in path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path)

    monkeypatch.setattr(os, "stat", refuse)
    alive = [7]
    probe = InterfacesProbe(lambda: alive, proc=proc)
    assert probe.read() == {}
    assert probe.unknown == {"interfaces": NOT_ALLOWED}
    alive.append(8)
    assert probe.read()
    assert probe.unknown == {}
    probe.close()


def test_a_namespace_that_appears_later_is_found(tmp_path: Path) -> None:
    proc = proc_with(tmp_path, self="a", p7="a", p8="b")
    alive = [7]
    probe = InterfacesProbe(lambda: alive, proc=proc)
    assert probe.read() == {}
    alive.append(8)
    assert probe.read()["interfaces"]["eth0.1"] == ETH
    assert (probe.unknown, list(probe.sources)) == ({}, ["interfaces"])
    probe.close()


def test_an_interface_that_is_taken_away_stays_as_it_was_last_seen(tmp_path: Path) -> None:
    probe = InterfacesProbe(lambda: [8], proc=proc_with(tmp_path, self="a", p8="b"))
    before = probe.read()["interfaces"]
    lines = TWO.splitlines(keepends=True)
    (tmp_path / "8" / "net" / "dev").write_bytes(b"".join(line for line in lines if b"eth0" not in line))
    after = probe.read()["interfaces"]
    assert after == before
    assert after["eth0.1"] == ETH
    probe.close()


def test_of_a_namespace_that_was_there_before_only_the_difference_counts(tmp_path: Path) -> None:
    proc = proc_with(tmp_path, self="a", p8="b")
    probe = InterfacesProbe(lambda: [8], has_begun=True, proc=proc)
    assert probe.read()["interfaces"]["eth0.1"] == InterfaceIo()
    (tmp_path / "8" / "net" / "dev").write_bytes(TWO.replace(b"123456", b"123460"))
    assert probe.read()["interfaces"]["eth0.1"].rx_bytes == 4
    probe.close()


def test_a_namespace_that_had_a_name_before_the_job_began_is_older(tmp_path: Path) -> None:
    proc = proc_with(tmp_path, self="a", p8="b")
    named = tmp_path / "named"
    named.mkdir()
    (named / "blue").hardlink_to(tmp_path / "namespace-b")
    probe = InterfacesProbe(lambda: [8], proc=proc, named=str(named))
    assert probe.read()["interfaces"]["eth0.1"] == InterfaceIo()
    probe.close()


def test_readings_continue_until_one_has_searched_for_a_namespace(tmp_path: Path) -> None:
    """A job enters one, and sleeps."""
    probe = InterfacesProbe(lambda: [7], proc=proc_with(tmp_path, self="a", p7="a"))
    for _ in range(10):
        probe.read()
    stable = [probe.is_stable]
    link = tmp_path / "7" / "ns" / "net"
    link.unlink()
    link.symlink_to(tmp_path / "namespace-b")
    (tmp_path / "namespace-b").touch()
    readings = [probe.read()]  # this one does not search
    stable.append(probe.is_stable)
    while not readings[-1] and len(readings) < 20:
        readings.append(probe.read())
    assert stable == [True, False]
    assert list(readings[-1]["interfaces"]) == ["lo", "eth0.1"]
