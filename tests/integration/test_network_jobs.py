"""The network of whole jobs: run, in slots, adopted, with a network of their own, where nobody may count."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.agent.slots.slot import Slot, SlotJob
from joblens.app.wiring.agent_context import close_context, open_context
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import Accounting, Job
from joblens.model.values.ids import new_uuid
from joblens.probes.network.cgroup_network import NO_GROUP
from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.network_jobs import IP4, LOOPBACK_UP, UDP_HEADER, packets_or_skip, udp
from tests.integration.run_jobs import PYTHON, wait_for_file

HEADERS = IP4 + UDP_HEADER


@pytest.fixture(scope="module", autouse=True)
def _packets_are_counted() -> None:
    packets_or_skip()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("cgroup", tmp_path) as found:
        yield found


def steps(one: BackgroundCli, *parts: str) -> tuple[str, ...]:
    """A job that does the parts one after the other, each when it is told by a file."""
    code = "import os, time\n"
    for number, part in enumerate(parts):
        go, done = str(one.folder / f"go{number}"), str(one.folder / f"done{number}")
        code += (
            f"while not os.path.exists({go!r}): time.sleep(0.01)\n{part}\nopen({done!r}, 'w').write('x\\n')\n"
        )
    return (*PYTHON, code)


def tell(one: BackgroundCli, number: int) -> None:
    (one.folder / f"go{number}").touch()
    wait_for_file(one.folder / f"done{number}")


def test_a_jobs_record_has_its_bytes_and_packets_and_says_who_counted_them(one: BackgroundCli) -> None:
    ran = one("--", *PYTHON, udp(count=20, size=100))
    assert ran.usage["network_rx_bytes"] == ran.usage["network_tx_bytes"] == 20 * (100 + HEADERS)
    assert ran.usage["network_rx_packets"] == ran.usage["network_tx_packets"] == 20
    assert "BPF" in ran.record["accounting"]["sources"]["network"]


def test_a_job_that_sends_nothing_has_nothing_not_null(one: BackgroundCli) -> None:
    ran = one("--", "true")
    assert (ran.usage["network_rx_bytes"], ran.usage["network_tx_packets"]) == (0, 0)


def test_by_the_process_tree_it_is_null_with_the_reason(one: BackgroundCli) -> None:
    ran = one("--accounting", "process_tree", "--", *PYTHON, udp(count=1, size=1))
    assert ran.usage["network_rx_bytes"] is None
    assert ran.record["accounting"]["unknown"]["network_rx_bytes"] == NO_GROUP


def test_a_job_nobody_may_count_has_null_and_the_reason(tmp_path: Path) -> None:
    with open_cli("nobody", tmp_path) as nobody:
        ran = nobody("--", *PYTHON, udp(count=1, size=1))
        assert ran.usage["network_rx_bytes"] is None
        assert ran.record["accounting"]["unknown"]["network_rx_bytes"]


def test_each_job_of_a_slot_has_its_own_packets(store_path: Path) -> None:
    commands = [[*PYTHON, udp(count, size=72)] for count in range(1, 25)]
    results = list(joblens.map_commands(commands, jobs=2, store=str(store_path)))
    found = sorted((one.usage.network_tx_packets, one.usage.network_rx_bytes) for one in results)
    assert found == [(count, count * (72 + HEADERS)) for count in range(1, 25)]
    assert all("BPF" in one.usage.sources["network"] for one in results)


def test_a_slot_without_groups_says_why_there_is_no_number(store_path: Path, tmp_path: Path) -> None:
    context = open_context(load_settings().settings)
    slot = Slot(context, Accounting.PROCESS_TREE, str(tmp_path / "logs"), 1 << 20)
    job = SlotJob(Job(uuid=new_uuid(), argv=("true",), created_at_us=0, cwd="/"), ("true",), {})
    slot.send([job])
    slot.begin(job, {})
    _, finished = slot.finish(slot.receive(), {})
    slot.close()
    close_context(context)
    assert finished.samples[-1].network_rx_bytes is None
    assert finished.origins.unknown["network_rx_bytes"] == NO_GROUP


def test_an_adopted_job_goes_on_with_the_same_counters(one: BackgroundCli) -> None:
    part = udp(count=10, size=100)
    uuid = one.submit("--interval", "50ms", "--", *steps(one, part, part, part))
    one.running(uuid)
    tell(one, 0)
    one.kill_supervisor()
    tell(one, 1)  # while nobody looks
    before = len(one.samples(uuid))
    one.call("list", code=0)
    wait_until(lambda: len(one.samples(uuid)) > before + 2, what="samples of the second supervisor")
    assert one.samples(uuid)[-1][1].network_tx_packets == 20
    tell(one, 2)
    usage = one.ended(uuid).outcome.usage  # type: ignore[union-attr]
    assert (usage.network_tx_packets, usage.network_rx_bytes) == (30, 30 * (100 + HEADERS))
    assert "network_rx_bytes" not in usage.lower_bounds


def test_a_job_that_ended_while_nobody_looked_has_all_its_packets(one: BackgroundCli) -> None:
    uuid = one.submit("--", *steps(one, udp(count=10, size=100)))
    one.running(uuid)
    one.kill_supervisor()
    tell(one, 0)
    wait_until((one.spool / f"{uuid}.outcome").exists, what="the launcher's word")
    one.call("list", code=0)
    usage = one.ended(uuid).outcome.usage  # type: ignore[union-attr]
    assert usage.network_rx_packets == 10


def test_a_job_with_a_network_of_its_own_has_its_interfaces(one: BackgroundCli) -> None:
    code = LOOPBACK_UP + udp(count=10, size=100) + "import time\ntime.sleep(0.5)\n"
    job = ("unshare", "-n", sys.executable, "-I", "-S", "-c", code)
    ran = one("--interval", "50ms", "--", *job)
    samples = one.samples(ran.record["job_uuid"])
    tables = [sample.interfaces for _, sample in samples if sample.interfaces is not None]
    assert tables[-1].keys() >= {"lo"}
    assert (tables[-1]["lo"].rx_packets, tables[-1]["lo"].tx_bytes) == (10, 10 * (100 + HEADERS))
    assert ran.usage["network_tx_packets"] == 10


def test_what_a_network_carried_before_the_job_came_to_it_is_not_the_jobs(one: BackgroundCli) -> None:
    result = "print(flush=True)\ninput()\n"
    code = LOOPBACK_UP + udp(count=10, size=100) + result
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    older = subprocess.Popen(["unshare", "-n", sys.executable, "-I", "-S", "-c", code], **pipes)
    try:
        assert older.stdout is not None
        older.stdout.readline()
        job = ("nsenter", "-t", str(older.pid), "-n", "sleep", "0.5")
        ran = one("--interval", "50ms", "--", *job)
    finally:
        older.communicate(b"\n", timeout=20)
    samples = one.samples(ran.record["job_uuid"])
    tables = [sample.interfaces for _, sample in samples if sample.interfaces is not None]
    assert {(table["lo"].rx_packets, table["lo"].tx_bytes) for table in tables} == {(0, 0)}


def test_a_job_on_the_machines_network_has_no_interfaces_but_the_machine_has_numbers(
    one: BackgroundCli,
) -> None:
    ran = one("--", "true")
    last = one.samples(ran.record["job_uuid"])[-1][1]
    assert last.interfaces is None
    assert last.host_network_rx_bytes is not None
