"""Accuracy and cost of a job's network counters."""

import os
import socket
import time
from collections.abc import Iterator
from statistics import median

from bench.commands import Workbench
from bench.goals import Figure
from joblens.agent.cgroups.groups import GroupFactory
from joblens.probes.network.cgroup_network import CgroupNetworkProbe, count_as_guest
from joblens.probes.network.endpoints import SocketDriver

MEGABYTES = 100
CONNECTIONS = 500
PERIOD_S = 10.0


def figures(bench: Workbench) -> Iterator[Figure]:
    for address in ("127.0.0.1", "::1"):
        yield _transfer(bench, address)
    groups = GroupFactory.detect().create(f"bench-{os.getpid()}")
    try:
        yield _begin(groups.paths["unified"])
        yield _read(groups.paths["unified"])
        yield _list(groups.paths["unified"])
    finally:
        groups.remove()


def _transfer(bench: Workbench, address: str) -> Figure:
    job = ["unshare", "-n", *bench.workload("loopback", MEGABYTES, address)]
    usage = bench.record("cgroup", job)["resource_usage"]
    truth = bench.truth()
    received, sent = usage["network_rx_bytes"], usage["network_tx_bytes"]
    error = max(abs(received / truth - 1), abs(sent / truth - 1)) * 100
    note = f"{received:,} in and {sent:,} out against {truth:,.0f} of the namespace's interface"
    what = f"network bytes of a {MEGABYTES} MB transfer over {address}, error"
    return Figure(what, error, "%", 1.0, note=note)


def _begin(group: str) -> Figure:
    times = []
    for _ in range(50):
        start = time.perf_counter()
        probe = CgroupNetworkProbe(group, count_as_guest)
        times.append((time.perf_counter() - start) * 1e3)
        probe.close()
    return Figure("beginning to count a job's packets", median(times), "ms", 2.0)


def _read(group: str) -> Figure:
    probe = CgroupNetworkProbe(group, count_as_guest)
    start = time.perf_counter()
    for _ in range(10_000):
        probe.read()
    spent_us = (time.perf_counter() - start) * 100
    probe.close()
    return Figure("reading what was counted", spent_us, "µs", 10.0)


def _list(group: str) -> Figure:
    """Sockets of others do not matter: the kernel leaves them out."""
    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as server:
        ends = [socket.create_connection(server.getsockname()) for _ in range(CONNECTIONS)]
        driver = SocketDriver()
        shares = []
        for number in range(20):
            driver.watch(str(number), group, list)
            start = time.thread_time()
            driver.read()
            shares.append((time.thread_time() - start) / PERIOD_S * 100)
            driver.forget(str(number))
        driver.close()
        for end in ends:
            end.close()
    note = f"one look in {PERIOD_S:.0f} s, beside {CONNECTIONS} connections of others"
    return Figure("listing a job's sockets, share of a core", median(shares), "%", 0.05, note=note)
