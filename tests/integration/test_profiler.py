"""ResourceProfiler in real programs: the examples people start from, several at once, threads and forks."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.agent.instruments import gpu as instrument_gpu
from joblens.analysis.numbers.profile import METRICS
from joblens.analysis.numbers.profile_statistics import aggregate_profiles
from joblens.app.in_process import host_meter
from joblens.app.in_process.monitor import JobMonitor
from joblens.app.in_process.profiler import ContainerResourceMonitor, ResourceProfiler, get_profiler
from joblens.model.errors import InputError
from joblens.probes.gpu.drm import DrmDriver
from joblens.probes.gpu.nvml import NvmlDriver
from tests.conftest import wait_until
from tests.unit.probes.nvml_fake import FakeGpu, FakeNvml

MIB = 2**20
# Every key of the profile that programs of Keystone's form read, with the kind of its value.
PROFILE_KEYS: dict[str, Any] = {
    "duration_seconds": float,
    "samples_collected": int,
    "sampling_interval_seconds": float,
    "cpu": {"mean_percent": float, "max_percent": float, "min_percent": float},
    "memory": {"mean_used_mb": float, "max_used_mb": float, "min_used_mb": float},
    "process_cpu": {"mean_percent": float, "max_percent": float},
    "process_memory": {"mean_mb": float, "max_mb": float, "min_mb": float},
    "io_stats": {
        "read_mb": float,
        "write_mb": float,
        "read_count": int,
        "write_count": int,
        "total_io_mb": float,
    },
    "gpu_stats": {},
    "container_stats": {},
}


def burn(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        sum(range(500))


def has_samples(profiler: ResourceProfiler, count: int) -> bool:
    return bool(profiler.snapshot()["samples_collected"] >= count)


def drivers_at_work() -> list[str]:
    """Threads that ask a GPU's driver; it is closed some time after the last one has left."""
    names = (f"joblens-{driver.name}" for driver in (NvmlDriver, DrmDriver))
    return [thread.name for thread in threading.enumerate() if thread.name in set(names)]


def assert_keys(found: Any, wanted: dict[str, Any]) -> None:
    for key, kind in wanted.items():
        if isinstance(kind, dict):
            assert isinstance(found[key], dict)
            assert_keys(found[key], kind)
        else:
            assert type(found[key]) is kind, key


# -- the examples


def test_the_direct_use_of_the_manual_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    code = """
from joblens import ResourceProfiler

profiler = ResourceProfiler()
profiler.start_profiling()
run_simulation()
profile = profiler.stop_profiling()

print(f"Duration: {profile['duration_seconds']}s")
print(f"CPU mean: {profile['cpu']['mean_percent']}%")
print(f"Memory peak: {profile['memory']['max_used_mb']} MB")
print(f"I/O total: {profile['io_stats']['total_io_mb']} MB")
"""
    exec(code, {"run_simulation": lambda: burn(0.2)})
    output = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert list(output) == ["Duration", "CPU mean", "Memory peak", "I/O total"]
    assert 0.2 <= float(output["Duration"].removesuffix("s")) < 60
    assert 0 < float(output["CPU mean"].removesuffix("%")) <= 100
    assert float(output["Memory peak"].removesuffix(" MB")) > 1


def test_the_use_of_a_container_runs_as_written_also_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "none.sock")
    monkeypatch.setattr("joblens.probes.containers.api._usual_sockets", lambda _: [nowhere])
    code = """
from joblens import ContainerResourceMonitor

monitor = ContainerResourceMonitor("keystone-fenicsx")
monitor.start_monitoring()
profile = monitor.stop_monitoring()
"""
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["profile"]["container_stats"] == {}


def test_a_profile_has_every_key_with_a_value_of_its_kind() -> None:
    profiler = ResourceProfiler(interval=0.05)
    profiler.start_profiling()
    held = bytearray(30 * MIB)
    wait_until(lambda: has_samples(profiler, 6))
    profile = profiler.stop_profiling()
    del held
    assert list(profile)[: len(PROFILE_KEYS)] == list(PROFILE_KEYS)
    assert_keys(profile, PROFILE_KEYS)
    assert json.loads(json.dumps(profile)) == profile
    assert profile["process_memory"]["max_mb"] > 30
    assert profile["sampling_interval_seconds"] > 0


def test_a_monitor_without_profiling_gives_no_profile_and_with_it_the_same_keys(tmp_path: Path) -> None:
    records = {}
    for enable in (False, True):
        monitor = joblens.JobMonitor(log_dir=tmp_path / str(enable), enable_profiling=enable)
        monitor.start_monitoring("t", "fenicsx", "poisson.py", {"mesh_size": 64})
        burn(0.1)
        records[enable] = monitor.stop_monitoring("t", "success", returncode=0)
        monitor.close()
    assert ["detailed_profile" in record for record in records.values()] == [False, True]
    assert records[False]["resource_usage"]["cpu_total_seconds"] is not None
    assert_keys(records[True]["detailed_profile"], PROFILE_KEYS)


def test_get_profiler_gives_one_profiler() -> None:
    assert get_profiler() is joblens.get_profiler()
    assert isinstance(get_profiler(), ResourceProfiler)


# -- what is measured


def test_work_of_threads_and_children_is_in_the_profile() -> None:
    profiler = ResourceProfiler(interval=0.05)
    profiler.start_profiling()
    thread = threading.Thread(target=burn, args=(0.2,))
    thread.start()
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-E", "-c", code], check=True)
    thread.join()
    profile = profiler.stop_profiling()
    used_s = profile["process_cpu"]["mean_percent"] * profile["duration_seconds"] / 100
    assert 0.5 <= used_s < 1.5
    assert profile["processes"]["max_count"] >= 1


def test_profilers_at_once_each_see_the_whole_process() -> None:
    """Also beside a job that is measured on another thread, which still gets its own thread's work only."""
    first, second = ResourceProfiler(interval=0.05), ResourceProfiler(interval=0.05)
    profiles: dict[str, dict[str, Any]] = {}

    def profile(name: str, profiler: ResourceProfiler) -> None:
        profiler.start_profiling()
        ready.wait()
        burn(0.25)
        done.wait()
        profiles[name] = profiler.stop_profiling()

    ready, done = threading.Barrier(2), threading.Barrier(2)
    threads = [threading.Thread(target=profile, args=args) for args in (("one", first), ("two", second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in profiles.values():
        used_s = result["process_cpu"]["mean_percent"] * result["duration_seconds"] / 100
        assert used_s >= 0.49


def test_a_profiler_does_not_share_out_the_work_of_a_job(tmp_path: Path) -> None:
    monitor = JobMonitor(log_dir=tmp_path)
    profiler = ResourceProfiler()
    started = threading.Event()
    over = threading.Event()

    def profile() -> None:
        profiler.start_profiling()
        started.set()
        over.wait()
        profiler.stop_profiling()

    thread = threading.Thread(target=profile)
    thread.start()
    started.wait()
    with monitor.track_job("t", "tool", "script") as tracker:
        burn(0.1)
    over.set()
    thread.join()
    monitor.close()
    assert tracker.record["accounting"]["shared"] is False


# -- choosing


def test_parts_that_were_not_asked_for_are_empty_and_keep_their_keys() -> None:
    profiler = ResourceProfiler(metrics=["cpu", "io"])
    profiler.start_profiling()
    profile = profiler.stop_profiling()
    assert profile["memory"] == profile["process_memory"] == profile["energy"] == {}
    assert_keys(profile["io_stats"], PROFILE_KEYS["io_stats"])
    assert profile.keys() >= PROFILE_KEYS.keys()


@pytest.mark.parametrize("metrics", [["cpu", "disk"], "disc", []])
def test_an_unknown_metric_is_refused_with_the_known_ones(metrics: Any) -> None:
    with pytest.raises(InputError) as refusal:
        ResourceProfiler(metrics=metrics)
    assert "threads" in refusal.value.hint
    with pytest.raises(InputError):
        ContainerResourceMonitor("c", metrics=metrics)


def test_a_gpu_that_nobody_uses_is_reported_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu("GPU-a")
    kinds = {"nvml": (lambda: True, lambda: NvmlDriver(lambda: FakeNvml(gpu)))}
    monkeypatch.setattr(instrument_gpu, "_KINDS", kinds)
    monkeypatch.setattr(host_meter, "_instruments", [])
    named = ResourceProfiler(interval=0.05, metrics=["gpu"])
    named.start_profiling()
    wait_until(lambda: bool(named.snapshot()["gpu_stats"]))
    usual = ResourceProfiler(interval=0.05)
    usual.start_profiling()
    result = named.stop_profiling()["gpu_stats"]["nvidia"]
    assert (result["gpu_utilization_percent"], result["power_watts"]) == (97.0, 512.0)
    assert [device["name"] for device in result["devices"]] == ["NVIDIA H200"]
    wait_until(lambda: has_samples(usual, 3))
    assert usual.stop_profiling()["gpu_stats"] == {}


def test_metrics_may_be_written_as_one_text() -> None:
    assert ResourceProfiler(metrics="memory, cpu").metrics == ("cpu", "memory")
    assert ResourceProfiler().metrics == tuple(METRICS)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "1"])
def test_an_interval_that_is_none_is_refused(interval: Any) -> None:
    with pytest.raises(InputError, match="interval"):
        ResourceProfiler(interval=interval)
    with pytest.raises(InputError, match="snapshot_interval"):
        ResourceProfiler(snapshot_interval=interval)


def test_what_cannot_be_meant_is_refused_with_words_that_help() -> None:
    with pytest.raises(InputError, match=r"at least 0\.05"):
        ResourceProfiler(interval=0.01)
    with pytest.raises(InputError, match="expected names"):
        ResourceProfiler(metrics=5)  # type: ignore[arg-type]
    for name in (None, 5, ""):
        with pytest.raises(InputError, match="name or the id of a container"):
            ContainerResourceMonitor(name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="item 0 is not a profile"):
        aggregate_profiles([None])  # type: ignore[list-item]


def test_a_callback_without_an_interval_is_refused() -> None:
    with pytest.raises(InputError, match="snapshot_interval"):
        ResourceProfiler(on_snapshot=print)


# -- starting and stopping


def test_stopping_what_was_not_started_warns_and_gives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    profiler = ResourceProfiler()
    with caplog.at_level(logging.WARNING, "joblens.profiler"):
        assert profiler.stop_profiling() == {}
        profiler.start_profiling()
        assert profiler.stop_profiling()["samples_collected"] >= 2
        assert profiler.stop_profiling() == {}
        assert ContainerResourceMonitor("c").stop_monitoring() == {}
    assert len(caplog.records) == 3
    assert profiler.snapshot() == {}


def test_starting_again_ends_what_was_under_way(caplog: pytest.LogCaptureFixture) -> None:
    profiler = ResourceProfiler()
    profiler.start_profiling()
    burn(0.1)
    with caplog.at_level(logging.WARNING, "joblens.profiler"):
        profiler.start_profiling()
    assert "again" in caplog.text
    earlier = profiler.profile
    assert earlier["duration_seconds"] >= 0.1
    assert profiler.is_profiling
    assert profiler.stop_profiling() is not earlier
    assert not profiler.is_profiling


def test_a_block_is_profiled_to_its_end_also_when_it_fails() -> None:
    with pytest.raises(ZeroDivisionError), ResourceProfiler() as profiler:
        raise ZeroDivisionError
    assert profiler.profile["duration_seconds"] >= 0
    with ResourceProfiler() as stopped:
        stopped.stop_profiling()
    assert stopped.profile["samples_collected"] >= 2


def test_a_forked_child_starts_over_and_the_parent_goes_on() -> None:
    code = """
import os, sys
from joblens import ResourceProfiler
profiler = ResourceProfiler(interval=0.05, snapshot_interval=10)
profiler.start_profiling()
child = os.fork()
if child == 0:
    fresh = not profiler.is_profiling and profiler.stop_profiling() == {}
    profiler.start_profiling()
    sum(range(200000))
    os._exit(0 if fresh and profiler.stop_profiling()["samples_collected"] >= 2 else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
profile = profiler.stop_profiling()
sys.exit(code or profile["process_cpu"]["mean_percent"] <= 0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_nothing_is_left_running_or_open() -> None:
    profiler = ResourceProfiler(metrics=["cpu", "memory"])  # a GPU's driver keeps files open
    profiler.start_profiling()
    profiler.stop_profiling()
    wait_until(lambda: not drivers_at_work())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        profiler.start_profiling()
        profiler.stop_profiling()
    wait_until(lambda: not drivers_at_work())
    assert len(os.listdir("/proc/self/fd")) <= before + 1


# -- snapshots


def test_a_snapshot_tells_of_the_time_so_far_and_profiling_goes_on() -> None:
    profiler = ResourceProfiler()
    profiler.start_profiling()
    burn(0.05)
    early = profiler.snapshot()
    burn(0.05)
    late = profiler.stop_profiling()
    assert early.keys() - late.keys() == {"snapshot_time"}
    assert 0 < early["duration_seconds"] < late["duration_seconds"]
    assert early["samples_collected"] < late["samples_collected"]


def test_snapshots_come_by_themselves_and_a_failing_callback_does_not_end_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[dict[str, Any]] = []

    def note(profile: dict[str, Any]) -> None:
        seen.append(profile)
        raise RuntimeError("disk full")

    profiler = ResourceProfiler(interval=0.05, snapshot_interval=0.05, on_snapshot=note)
    profiler.start_profiling()
    wait_until(lambda: len(seen) >= 3)
    profiler.stop_profiling()
    durations = [profile["duration_seconds"] for profile in seen]
    assert durations == sorted(durations)
    assert list(profiler.snapshots)[:3] == seen[:3]
    assert "disk full" in caplog.text


def test_a_job_of_a_monitor_can_be_looked_at_while_it_runs(tmp_path: Path) -> None:
    monitor = JobMonitor(log_dir=tmp_path)
    assert monitor.snapshot("t") == {}
    with monitor.track_job("t", "tool", "script") as tracker:
        burn(0.05)
        snapshot = monitor.snapshot("t")
    monitor.close()
    assert snapshot["snapshot_time"]
    assert snapshot["duration_seconds"] < tracker.record["detailed_profile"]["duration_seconds"]
