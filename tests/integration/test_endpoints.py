"""Sockets of real jobs, as the kernel lists them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.instruments.endpoints import EndpointProbe, open_probe
from joblens.agent.instruments.table import DetailTaker, Instruments, Watched
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import Endpoint
from joblens.model.jobs.job import Job
from joblens.model.writes import DetailsTaken
from joblens.probes.network.cgroup_network import NO_GROUP
from joblens.probes.network.endpoints import SocketDriver, group_ids
from joblens.probes.network.socket_dump import SocketDump
from tests.conftest import wait_until
from tests.integration.background_jobs import open_cli
from tests.integration.cgroup_jobs import make_groups, start_in, start_python_in
from tests.integration.network_jobs import LOOPBACK_UP, has_ipv6, tcp
from tests.integration.run_jobs import PYTHON

pytestmark = pytest.mark.cgroup
WAIT = "print(server.getsockname()[1], flush=True)\ninput()\n"


@pytest.fixture(autouse=True)
def _sockets_are_listed() -> None:
    dump = SocketDump()
    try:
        list(dump.sockets([1]))
    except ProbeError as error:
        pytest.skip(str(error))
    finally:
        dump.close()


@pytest.fixture
def groups() -> Iterator[JobGroups]:
    yield from make_groups()


@pytest.fixture
def other_groups() -> Iterator[JobGroups]:
    yield from make_groups()


@pytest.fixture
def driver() -> Iterator[SocketDriver]:
    driver = SocketDriver()
    yield driver
    driver.close()


def started(groups: JobGroups, code: str, *prefix: str) -> tuple[subprocess.Popen[bytes], int]:
    """A job that holds its sockets until it is told to end, and the port of its server."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    if prefix:
        process = start_in(groups, *prefix, sys.executable, "-I", "-S", "-c", code, **pipes)
    else:
        process = start_python_in(groups, code, **pipes)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n", timeout=20)


def seen(driver: SocketDriver, name: str = "job") -> dict[tuple[str, int, bool], Endpoint]:
    known = driver.read()
    assert known is not None
    table, problem = known[name]
    assert table is not None
    assert problem == ""
    return {(one.address, one.port, one.is_listener): one for one in table.endpoints}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_ends_of_a_connection_are_seen_with_their_bytes(
    groups: JobGroups, driver: SocketDriver, address: str
) -> None:
    if ":" in address and not has_ipv6():
        pytest.skip("no IPv6 here")
    job, port = started(groups, tcp(1_000_000, address) + WAIT)
    driver.watch("job", groups.paths["unified"], groups.pids)
    found = seen(driver)
    end(job)
    assert found[address, port, False].tx_bytes == 1_000_000
    assert found[address, port, False].rx_bytes == 0
    assert found[address, port, True].rx_bytes == 1_000_000


def test_sockets_of_groups_below_are_the_jobs_and_those_of_others_are_not(
    groups: JobGroups, other_groups: JobGroups, driver: SocketDriver
) -> None:
    below = Path(groups.paths["unified"]) / "below"
    below.mkdir()
    nested = JobGroups(groups.kind, {"unified": str(below)})
    job, port = started(nested, tcp(10) + WAIT)
    other, other_port = started(other_groups, tcp(10) + WAIT)
    driver.watch("job", groups.paths["unified"], groups.pids)
    driver.watch("other", other_groups.paths["unified"], other_groups.pids)
    known = driver.read()
    end(other)
    end(job)
    below.rmdir()
    assert known is not None
    ports = {name: {one.port for one in table.endpoints} for name, (table, _) in known.items() if table}
    assert ports == {"job": {port}, "other": {other_port}}


def test_a_job_with_a_network_of_its_own_is_asked_for_there(groups: JobGroups, driver: SocketDriver) -> None:
    job, port = started(groups, LOOPBACK_UP + tcp(500) + WAIT, "unshare", "-n")
    driver.watch("job", groups.paths["unified"], groups.pids)
    found = seen(driver)
    namespace = Path("/proc/thread-self/ns/net").readlink()
    end(job)
    assert found["127.0.0.1", port, False].tx_bytes == 500
    assert namespace == Path("/proc/self/ns/net").readlink()


def test_a_job_is_looked_at_less_and_less_often(groups: JobGroups, driver: SocketDriver) -> None:
    driver.watch("job", groups.paths["unified"], groups.pids)
    assert driver.read() is not None
    assert driver.read() is None  # not yet
    gaps = []
    for _ in range(6):
        driver._jobs["job"].due_s = 0.0
        before = time.monotonic()
        driver.read()
        gaps.append(driver._jobs["job"].due_s - before)
    assert gaps[0] < gaps[-1]
    assert gaps[-1] > 9


def test_the_first_looks_come_in_time_though_one_was_dear(driver: SocketDriver) -> None:
    """What was saved is spent first; in the long run looks cost what they may."""
    now_s = driver._credit_at_s
    assert driver._pause_s(now_s, 0.005) == 0
    assert driver._pause_s(now_s + 1, 0.005) == 0
    assert driver._pause_s(now_s + 2, 0.030) == pytest.approx((0.040 - 0.020 - 0.001) * 2000)
    assert driver._pause_s(now_s + 1000, 0.001) == 0


def test_the_last_look_of_someone_who_goes_while_the_job_does_not_is_taken_at_once(
    groups: JobGroups,
) -> None:
    again = "input()\nclient.sendall(bytes(77))\nserved.recv(100)\nprint(flush=True)\n"
    job, port = started(groups, tcp(1000) + "print(server.getsockname()[1], flush=True)\n" + again + WAIT)
    probe = open_probe(watched(groups.paths, groups.pids), Instruments())
    assert isinstance(probe, EndpointProbe)
    probe._opened_s -= 1
    wait_until(lambda: probe.read().endpoints is not None, what="the first look")
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdin.write(b"\n")
    job.stdin.flush()
    job.stdout.readline()
    received: list[DetailsTaken] = []
    probe._driver(probe._thread)._jobs["job"].due_s = float("inf")  # type: ignore[arg-type]
    taker = DetailTaker("job", [probe], received.extend)

    def has_looked() -> bool:
        taker.tick(final=True)
        return bool(received)

    wait_until(has_looked, what="the last look")
    end(job)
    probe.close()
    table = received[-1].details.endpoints
    assert table is not None
    assert {one.tx_bytes for one in table.endpoints if one.port == port} >= {1077}


def test_a_group_that_is_gone_has_no_sockets(driver: SocketDriver, tmp_path: Path) -> None:
    assert group_ids(str(tmp_path / "gone")) == []
    driver.watch("job", str(tmp_path / "gone"), list)
    assert seen(driver) == {}


def test_the_probe_hands_out_what_the_thread_has_seen_and_ends_it_when_it_is_closed(
    groups: JobGroups,
) -> None:
    job, port = started(groups, tcp(1234) + WAIT)
    instruments = Instruments()
    probe = open_probe(watched(groups.paths, groups.pids), instruments)
    assert isinstance(probe, EndpointProbe)
    probe._opened_s -= 1
    tables = []

    def has_news() -> bool:
        tables.append(probe.read().endpoints)
        return tables[-1] is not None

    wait_until(has_news, what="the first look")
    end(job)
    assert any(one.port == port and one.tx_bytes == 1234 for one in tables[-1].endpoints)  # type: ignore[union-attr]
    thread = instruments.driver("sock_diag", SocketDriver)
    probe.close()
    wait_until(lambda: thread._thread is None, what="the thread to end")


def test_what_was_exchanged_before_someone_began_to_look_is_not_counted(groups: JobGroups) -> None:
    again = "input()\nclient.sendall(bytes(77))\nserved.recv(100)\nprint(flush=True)\n"
    job, port = started(
        groups, tcp(1_000_000) + "print(server.getsockname()[1], flush=True)\n" + again + WAIT
    )
    probe = open_probe(watched(groups.paths, groups.pids, has_new_processes=False), Instruments())

    def sent() -> int | None:
        table = probe.read().endpoints
        ends = table.endpoints if table is not None else ()
        return next((one.tx_bytes for one in ends if one.port == port and not one.is_listener), None)

    wait_until(lambda: sent() == 0, what="the first look, at once")
    assert job.stdin is not None
    job.stdin.write(b"\n")
    job.stdin.flush()
    wait_until(lambda: sent() == 77, what="what it sent after that")
    end(job)
    probe.close()


def test_without_a_group_the_details_say_why(groups: JobGroups) -> None:
    probe = open_probe(watched({}, list), Instruments())
    assert probe.read().unknown == {"endpoints": NO_GROUP}


def test_a_whole_job_keeps_whom_it_talked_to(tmp_path: Path) -> None:
    with open_cli("cgroup", tmp_path) as one:
        code = tcp(5000) + "import time\ntime.sleep(2.5)\n"
        ran = one("--interval", "100ms", "--", *PYTHON, code)
        with one.opened() as store:
            details = store.details(ran.record["job_uuid"])
    assert details is not None
    assert details.endpoints is not None
    assert {end.tx_bytes for end in details.endpoints.endpoints} >= {5000}


def watched(paths: dict[str, str], pids: Any, *, has_new_processes: bool = True) -> Watched:
    job = Job(uuid="job", argv=("x",), created_at_us=0, cwd="/")
    return Watched(job=job, main_pid=None, groups=paths, pids=pids, has_new_processes=has_new_processes)
