"""Kill -9 of whoever measures a job: the next one goes on, and the record is as if nothing had been."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample
from joblens.probes.host.perf_counters import could_count
from tests.conftest import REPOSITORY, python_path, wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.network_jobs import packets_or_skip
from tests.integration.run_jobs import PYTHON, wait_for_file

_WHY_NO_COUNTERS = could_count(os.getpid())["cpu_migrations"]
_MIB = 2**20
# In every Python of joblens, and not in the jobs: one GPU, on which are all processes that put their numbers
# into a folder.
_GPU = """
import os, time
folder = {folder!r}
from joblens.agent.instruments import gpu as instrument_gpu
def make():
    from joblens.probes.gpu.nvml import NvmlDriver
    from tests.unit.probes.nvml_fake import FakeGpu, FakeNvml
    class FolderGpu(FakeGpu):
        def answer(self, call, arguments):
            if call == "nvmlDeviceGetComputeRunningProcesses":
                self.processes = {{int(name): 300 << 20 for name in os.listdir(folder)}}
            elif call == "nvmlDeviceGetProcessUtilization":
                now_us = time.time_ns() // 1000
                self.samples = [(pid, now_us, 50) for pid in self.processes]
            self.energy_mj = time.monotonic_ns() // 10**4
            return super().answer(call, arguments)
    driver = NvmlDriver(lambda: FakeNvml(FolderGpu("GPU-a")))
    driver.interval_s = 0.1
    return driver
instrument_gpu._KINDS = {{"nvml": (lambda: True, make)}}
"""
# Of a step: some traffic to a server that stays, and a thread of its own that computes and ends.
_JOB = """
import os, socket, threading, time
open({gpu!r} + f"/{{os.getpid()}}", "w").close()
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
served, _ = server.accept()
def wait_for(name):
    while not os.path.exists({folder!r} + "/" + name): time.sleep(0.02)
def compute(number):
    open("/proc/thread-self/comm", "w").write(f"step{{number}}")
    end_s = time.thread_time() + 0.2
    while time.thread_time() < end_s: pass
    wait_for(f"seen{{number}}")
for number in range(2):
    wait_for(f"begin{{number}}")
    client.sendall(bytes(200_000))
    left = 200_000
    while left: left -= len(served.recv(left))
    worker = threading.Thread(target=compute, args=(number,))
    worker.start()
    worker.join()
    open({folder!r} + f"/done{{number}}", "w").write("x\\n")
"""


@pytest.fixture(params=["cgroup", "process_tree"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli(request.param, tmp_path) as found:
        gpu = tmp_path / "gpu"
        gpu.mkdir()
        code = tmp_path / "python"
        code.mkdir()
        (code / "sitecustomize.py").write_text(_GPU.format(folder=str(gpu)))
        found.extra_env["PYTHONPATH"] = python_path(code, REPOSITORY)
        yield found


def details_of(one: BackgroundCli, uuid: str) -> Details:
    with one.opened() as store:
        return store.details(uuid)


def busy_threads(one: BackgroundCli, uuid: str) -> set[str]:
    table = details_of(one, uuid).threads
    return {use.name for use in table.threads if use.cpu_usec > 150_000} if table is not None else set()


def adopted(one: BackgroundCli, tmp_path: Path) -> str:
    """A job that has one owner for its first step and another for its second. -> its uuid"""
    code = _JOB.format(gpu=str(tmp_path / "gpu"), folder=str(one.folder))
    uuid = one.submit("--interval", "100ms", "--", *PYTHON, code)
    let_do(one, uuid, 0)
    wait_until(lambda: has_gpus(one.samples(uuid)), what="the GPU in the samples")
    one.kill_supervisor()
    before = len(one.samples(uuid))
    one.call("list", code=0)
    wait_until(lambda: len(one.samples(uuid)) > before + 2, what="samples of the second supervisor")
    wait_until(lambda: has_gpus(one.samples(uuid)[before:]), what="the GPU in samples of the second one")
    let_do(one, uuid, 1)
    one.ended(uuid)
    return uuid


def let_do(one: BackgroundCli, uuid: str, step: int) -> None:
    (one.folder / f"begin{step}").touch()
    wait_until(lambda: f"step{step}" in busy_threads(one, uuid), what="its thread in the table")
    (one.folder / f"seen{step}").touch()
    wait_for_file(one.folder / f"done{step}")


def has_gpus(samples: Sequence[tuple[int, Sample]]) -> bool:
    return any(sample.gpus for _, sample in samples)


def usage_of(one: BackgroundCli, uuid: str) -> Usage:
    outcome = one.record(uuid).outcome
    assert outcome is not None
    assert outcome.exit_code == 0
    return outcome.usage


def assert_never_back(samples: Sequence[tuple[int, Sample]]) -> None:
    for name in (
        "cpu_total_usec",
        "io_call_write_bytes",
        "network_rx_bytes",
        "network_tx_packets",
        "context_switches",
        "cpu_migrations",
    ):
        known = [value for _, sample in samples if (value := getattr(sample, name)) is not None]
        assert known == sorted(known), name
    for field in ("energy_mj", "job_busy_usec"):
        known = [
            value
            for _, sample in samples
            for reading in (sample.gpus or {}).values()
            if (value := getattr(reading, field)) is not None
        ]
        assert known, field
        assert known == sorted(known), field


def test_nothing_goes_back_and_nothing_is_missing(one: BackgroundCli, tmp_path: Path) -> None:
    uuid = adopted(one, tmp_path)
    samples, usage, details = one.samples(uuid), usage_of(one, uuid), details_of(one, uuid)
    assert_never_back(samples)
    assert usage.gpu_memory_peak_bytes == 300 * _MIB
    assert usage.gpu_busy_usec
    assert details.gpus is not None
    assert [facts.name for facts in details.gpus] == ["NVIDIA H200"]
    assert details.threads is not None
    both = [use for use in details.threads.threads if use.name in ("step0", "step1")]
    assert sorted(use.name for use in both) == ["step0", "step1"]
    assert all(use.cpu_usec > 150_000 and not use.is_alive for use in both)
    assert details.threads.seen == 3
    if not _WHY_NO_COUNTERS:
        assert samples[-1][1].context_switches is not None
        assert usage.cpu_migrations is not None
        assert usage.sources["cpu_migrations"] == "perf_event_open cpu-migrations"
    if "network_rx_bytes" not in usage.unknown:
        assert 2 * 200_000 < (usage.network_rx_bytes or 0) < 2 * 230_000
        assert "network_rx_bytes" not in usage.lower_bounds
    assert gpu_names(one, uuid) == ["NVIDIA H200"]


def gpu_names(one: BackgroundCli, uuid: str) -> list[Any]:
    outcome = one.record(uuid).outcome
    assert outcome is not None
    assert outcome.profile is not None
    return [gpu["name"] for gpu in outcome.profile["gpu_stats"]["nvidia"]["devices"]]


def test_reasons_are_those_of_anyone_who_looked_last(one: BackgroundCli, tmp_path: Path) -> None:
    uuid = one.submit("--interval", "100ms", "--probes", "-gpu", "--", *PYTHON, _WAITING.format(one.folder))
    wait_for_file(one.folder / "here")
    first = one.running(uuid)
    one.kill_supervisor()
    before = len(one.samples(uuid))
    one.call("list", code=0)
    wait_until(lambda: len(one.samples(uuid)) > before + 2, what="samples of the second supervisor")
    (one.folder / "go").touch()
    one.ended(uuid)
    unknown = usage_of(one, uuid).unknown
    assert "not requested" in unknown["gpu_busy_usec"]
    assert "not measured" not in {unknown[name] for name in unknown if not name.startswith("energy")}
    assert first.attempt is not None
    if first.attempt.accounting == "process-tree":
        assert "group" in unknown["network_rx_bytes"]


def test_reasons_of_a_job_that_nobody_went_on_to_look_at(one: BackgroundCli, tmp_path: Path) -> None:
    uuid = one.submit(
        "--interval", "100ms", "--probes", "-energy", "--", *PYTHON, _WAITING.format(one.folder)
    )
    wait_for_file(one.folder / "here")
    one.running(uuid)
    one.kill_supervisor()
    (one.folder / "go").touch()
    wait_until((one.spool / f"{uuid}.outcome").exists, what="the launcher's word")
    one.call("list", code=0)
    one.ended(uuid)
    unknown = usage_of(one, uuid).unknown
    assert "was killed" in unknown["instructions"]
    assert "not requested" in unknown["energy_package_uj"]
    assert "not measured" not in unknown.values()


_WAITING = """
import os, time
open("{0}/here", "w").write("x\\n")
while not os.path.exists("{0}/go"): time.sleep(0.02)
"""


def test_endpoints_of_before_are_kept_and_those_still_open_counted_once(tmp_path: Path) -> None:
    packets_or_skip()
    with open_cli("cgroup", tmp_path) as one:
        uuid = one.submit("--interval", "100ms", "--", *PYTHON, _TWO_SERVERS.format(one.folder))
        wait_for_file(one.folder / "first")
        wait_until(lambda: ports_of(one, uuid), what="endpoints of the first one")
        (one.folder / "leave").touch()
        wait_for_file(one.folder / "second")
        before = ports_of(one, uuid)
        one.kill_supervisor()
        at_us = table_time(one, uuid)
        one.call("list", code=0)
        wait_until(lambda: table_time(one, uuid) > at_us, what="a table of the second one", timeout=30)
        after = ports_of(one, uuid)
        (one.folder / "go").touch()
        one.ended(uuid)
    assert before.keys() <= after.keys()
    assert all(after[key] >= before[key] for key in before)
    assert max(after.values()) < 2 * 300_000


def table_time(one: BackgroundCli, uuid: str) -> int:
    table = details_of(one, uuid).endpoints
    return table.at_us if table is not None else 0


def ports_of(one: BackgroundCli, uuid: str) -> dict[tuple[int, bool], int]:
    table = details_of(one, uuid).endpoints
    if table is None:
        return {}
    return {(each.port, each.is_listener): each.rx_bytes or 0 for each in table.endpoints if each.rx_bytes}


_TWO_SERVERS = """
import os, socket, time
def connected():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    served, _ = server.accept()
    client.sendall(bytes(100_000))
    left = 100_000
    while left: left -= len(served.recv(left))
    served.sendall(bytes(200_000))
    left = 200_000
    while left: left -= len(client.recv(left))
    return server, client, served
stays = connected()
leaves = connected()
open("{0}/first", "w").write("x\\n")
while not os.path.exists("{0}/leave"): time.sleep(0.02)
for one in leaves: one.close()
open("{0}/second", "w").write("x\\n")
while not os.path.exists("{0}/go"): time.sleep(0.02)
"""
