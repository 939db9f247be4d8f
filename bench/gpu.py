"""Two jobs on one NVIDIA GPU at once: joblens' numbers next to nvidia-smi's, and the cost of reading them.

`python -m bench.gpu` needs a GPU, PyTorch and nvidia-smi, and ends within 4 minutes. It
prints its results and writes to the folder $OUT: results.json, nvml.json (every call of NVML and its answer,
which tests replay), nvml_bursts.json, pmon.txt and samples.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec

import joblens
from bench.nvml_recording import RecordingLibrary, cost_by_call
from joblens.app.wiring.drivers import open_store
from joblens.app.wiring.settings import load_settings
from joblens.model.history import HistoryQuery
from joblens.probes.gpu.attribution import GpuFollower
from joblens.probes.gpu.nvml import NvmlDriver
from joblens.probes.gpu.nvml_calls import load_library

WORKLOAD = str(Path(__file__).parent / "workloads" / "gpu.py")
JOINT_S = int(sys.argv[1]) if len(sys.argv) > 1 else 60
PMON_S = JOINT_S - 20
OUT = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="joblens-gpu-"))
STORE = tempfile.mkdtemp(prefix="joblens-store-")
os.environ["JOBLENS_STORE"] = f"{STORE}/joblens.db"
# Jobs and workflows run in other folders, too.
os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(each or ".").resolve()) for each in sys.path)
MIB = 2**20


class Started:
    """A job under `joblens run`, and the pid of its process, which it prints first."""

    def __init__(self, ident: str, command: list[str], *options: str) -> None:
        self.ident = ident
        line = [sys.executable, "-m", "joblens", "run", "--quiet", "--id", ident, *options, "--", *command]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self.pid = 0

    def wait_for_pid(self) -> int:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.lines.append(line.rstrip())
            if line.strip().isdecimal():
                self.pid = int(line)
                return self.pid
        raise RuntimeError(f"{self.ident} ended without a pid: {self.lines}")

    def finish(self) -> int:
        rest, _ = self.process.communicate(timeout=120)
        self.lines += rest.splitlines()
        return self.process.returncode

    def own_cpu_s(self) -> float:
        """Returns CPU of the process that manages the job, without its launcher and the job."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def smi(*arguments: str) -> str:
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def poll_smi(seconds: float, apps: list[Any], devices: list[Any]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        apps.append(
            [time.time(), smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")]
        )
        query = "utilization.gpu,utilization.memory,memory.used,memory.free,memory.total"
        devices.append(
            [
                time.time(),
                smi(
                    f"--query-gpu={query},power.draw,temperature.gpu,clocks.sm,clocks.mem",
                    "--format=csv,noheader,nounits",
                ),
            ]
        )
        time.sleep(2)


def record_driver(pids: dict[str, int], seconds: float) -> dict[str, Any]:
    """Runs joblens' own reader next to the jobs and records every call."""
    recording = RecordingLibrary(load_library())
    driver = NvmlDriver(load=lambda: recording)
    for job, pid in pids.items():
        driver.followers.add(job, GpuFollower(lambda pid=pid: [pid]))  # type: ignore[misc]
    readings, cpu_ms, wall_ms = [], [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, cpu = time.perf_counter(), time.thread_time()
        found = driver.read()
        wall_ms.append((time.perf_counter() - began) * 1000)
        cpu_ms.append((time.thread_time() - cpu) * 1000)
        readings.append([time.time_ns() // 1000, len(recording.calls), msgspec.to_builtins(found)])
        time.sleep(max(0.0, 2 - (time.perf_counter() - began)))
    facts = msgspec.to_builtins(driver.facts())
    normal = sorted(cpu_ms[1:])
    return {
        "calls": list(recording.calls),
        "readings": readings,
        "facts": facts,
        "pids": pids,
        "cpu_ms": cpu_ms,
        "wall_ms": wall_ms,
        "cost": cost_by_call(recording.calls),
        "cpu_ms_median": normal[len(normal) // 2],
        "cpu_share_of_core_percent": sum(cpu_ms[1:]) / (seconds * 10),
    }


def ask_everything(pids: dict[str, int]) -> list[Any]:
    """Makes calls that the reader does not use, to record this GPU's answers."""
    library = load_library()
    recording = RecordingLibrary(library)
    handle = recording.nvmlDeviceGetHandleByIndex(0)
    now_us = time.time_ns() // 1000
    questions: list[tuple[str, tuple[Any, ...]]] = [
        *(
            ("nvmlDeviceGetProcessUtilization", (since,))
            for since in (0, now_us - 500_000, now_us - 1_000_000)
        ),
        *(
            ("nvmlDeviceGetProcessUtilization", (since,))
            for since in (now_us - 3_000_000, now_us - 10_000_000)
        ),
        *(("nvmlDeviceGetProcessesUtilizationInfo", (since,)) for since in (0, now_us - 2_000_000)),
        ("nvmlDeviceGetMemoryInfo", ()),
        ("nvmlDeviceGetMemoryInfo", (0x2000028,)),
        ("nvmlDeviceGetComputeRunningProcesses", ()),
        ("nvmlDeviceGetGraphicsRunningProcesses", ()),
        ("nvmlDeviceGetMPSComputeRunningProcesses", ()),
        ("nvmlDeviceGetMigMode", ()),
        ("nvmlDeviceGetMaxMigDeviceCount", ()),
        ("nvmlDeviceGetAccountingMode", ()),
        ("nvmlDeviceGetFanSpeed", ()),
        ("nvmlDeviceGetPersistenceMode", ()),
        ("nvmlDeviceGetMinorNumber", ()),
        ("nvmlDeviceGetCurrentClocksEventReasons", ()),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
        ("nvmlDeviceGetEncoderUtilization", ()),
        ("nvmlDeviceGetDecoderUtilization", ()),
        ("nvmlDeviceGetRetiredPagesPendingStatus", ()),
        ("nvmlDeviceGetPcieThroughput", (0,)),
        ("nvmlDeviceGetPcieThroughput", (1,)),
        ("nvmlDeviceGetTotalEccErrors", (0, 0)),
        ("nvmlDeviceGetTotalEccErrors", (1, 0)),
    ]
    for name, arguments in questions:
        try:
            getattr(recording, name)(handle, *arguments)
        except library.NVMLError:
            pass  # written down
        except Exception as error:  # noqa: BLE001 - a binding that lacks it
            recording.calls.append([name, "gpu0", list(arguments), {"error": -1, "text": repr(error)}, 0, 0])
    library.nvmlShutdown()
    return [*recording.calls, ["pids", "", [], {"fields": pids}, 0, 0]]


def stored(ident: str) -> dict[str, Any]:
    store = open_store(load_settings().settings)
    record = store.find(ident)
    samples = [sample for _, sample in store.samples(record.job.uuid)]
    details = msgspec.to_builtins(store.details(record.job.uuid))
    outcome = record.outcome
    return {
        "gpus": [[sample.at_us, msgspec.to_builtins(sample.gpus)] for sample in samples],
        "host_samples": len(samples),
        "details": details.get("gpus"),
        "gpu_devices": list(record.job.gpu_devices),
        "unknown": dict(outcome.usage.unknown) if outcome else {},
        "usage": {
            name: getattr(outcome.usage, name)
            for name in ("gpu_memory_peak_bytes", "gpu_busy_usec", "gpu_energy_uj")
        }
        if outcome
        else {},
        "findings": [msgspec.to_builtins(finding) for finding in outcome.findings] if outcome else [],
        "status": str(record.status),
    }


def two_jobs() -> dict[str, Any]:
    heavy = Started("heavy", [sys.executable, WORKLOAD, "2048", "0.7", str(JOINT_S)], "--gpus", "1")
    light = Started("light", [sys.executable, WORKLOAD, "512", "0.2", str(JOINT_S)])
    pids = {"heavy": heavy.wait_for_pid(), "light": light.wait_for_pid()}
    time.sleep(3)
    apps: list[Any] = []
    devices: list[Any] = []
    poller = threading.Thread(target=poll_smi, args=(PMON_S, apps, devices))
    began = time.time()
    cpu_began = {job.ident: job.own_cpu_s() for job in (heavy, light)}
    pmon = subprocess.Popen(
        ["nvidia-smi", "pmon", "-i", "0", "-s", "um", "-d", "1", "-c", str(PMON_S)],
        stdout=subprocess.PIPE,
        text=True,
    )
    poller.start()
    driver = record_driver(pids, PMON_S - 6)
    everything = ask_everything(pids)
    pmon_text, _ = pmon.communicate(timeout=90)
    poller.join()
    ended = time.time()
    cpu = {
        job.ident: (job.own_cpu_s() - cpu_began[job.ident]) / (ended - began) * 100 for job in (heavy, light)
    }
    codes = {job.ident: job.finish() for job in (heavy, light)}
    (OUT / "pmon.txt").write_text(pmon_text)
    (OUT / "nvml.json").write_text(json.dumps({**driver, "everything": everything, "smi_devices": devices}))
    found: dict[str, Any] = {}
    for job in (heavy, light):
        attempt(found, job.ident, lambda job=job: stored(job.ident))  # type: ignore[misc]
    seconds = found.pop("seconds")
    compared: dict[str, Any] = {}
    attempt(compared, "all", lambda: compare(pids, found, pmon_text, apps, devices, (began, ended)))
    return {
        "seconds": seconds,
        "exit_codes": codes,
        "printed": {job.ident: job.lines for job in (heavy, light)},
        "joblens_cpu_percent_of_core": cpu,
        "driver": {name: driver[name] for name in ("cost", "cpu_ms_median", "cpu_share_of_core_percent")},
        "compared": compared["all"],
        "stored": {name: {**one, "gpus": one.get("gpus", [])[-3:]} for name, one in found.items()},
        "all_samples": found,
    }


def compare(
    pids: dict[str, int],
    found: dict[str, Any],
    pmon_text: str,
    apps: list[Any],
    devices: list[Any],
    window: tuple[float, float],
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, pid in pids.items():
        seen = [
            (at_us / 1e6, next(iter(gpus.values())))
            for at_us, gpus in found[name]["gpus"]
            if gpus and window[0] <= at_us / 1e6 <= window[1]
        ]
        smi_memory = [
            int(words[1]) * MIB
            for _, text in apps
            for line in text.splitlines()
            if (words := [word.strip() for word in line.split(",")])[0] == str(pid) and words[1].isdecimal()
        ]
        shares = [
            0.0 if words[3] == "-" else float(words[3])
            for line in pmon_text.splitlines()
            if not line.startswith("#") and (words := line.split())[1] == str(pid)
        ]
        result[name] = {
            "readings": len(seen),
            "memory": beside([one.get("job_memory_bytes") for _, one in seen], smi_memory),
            "utilization": beside([one.get("job_utilization", 0) / 100 for _, one in seen], shares),
            "utilization_by_counter": counter_share(seen),
        }
    whole = [
        next(iter(gpus.values()))
        for at_us, gpus in found["heavy"]["gpus"]
        if gpus and window[0] <= at_us / 1e6 <= window[1]
    ]
    rows = [[float(word) for word in text.split(",")] for _, text in devices if text.count(",") >= 8]
    for place, (field, factor) in enumerate(
        (
            ("utilization", 0.01),
            ("memory_utilization", 0.01),
            ("memory_used_bytes", 1 / MIB),
            ("memory_free_bytes", 1 / MIB),
        )
    ):
        ours = [one[field] * factor for one in whole if field in one]
        result[f"device {field}"] = beside(ours, [row[place] for row in rows])
    for place, field, factor in ((5, "power_mw", 0.001), (6, "temperature_c", 1), (7, "sm_clock_mhz", 1)):
        ours = [one[field] * factor for one in whole if field in one]
        result[f"device {field}"] = beside(ours, [row[place] for row in rows])
    return result


def beside(ours: list[Any], theirs: list[Any]) -> dict[str, Any]:
    known = [float(value) for value in ours if value is not None]
    if not known or not theirs:
        return {"joblens": mean(known) if known else None, "nvidia_smi": mean(theirs) if theirs else None}
    off = (mean(known) - mean(theirs)) / mean(theirs) * 100 if mean(theirs) else None
    return {"joblens": mean(known), "nvidia_smi": mean(theirs), "off_percent": off, "theirs": theirs[:60]}


def counter_share(seen: list[Any]) -> float | None:
    """Percent of the time, by the counter of busy time."""
    if len(seen) < 2 or seen[-1][1].get("job_busy_usec") is None:
        return None
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    busy_usec = last["job_busy_usec"] - (first.get("job_busy_usec") or 0)
    return float(busy_usec / 1e4 / (last_s - first_s))


def bursts() -> dict[str, Any]:
    """Alone on the GPU, one second busy in four: whether the counter of busy time adds up to the truth."""
    job = Started("bursts", [sys.executable, WORKLOAD, "256", "0.25", "32", "4"], "--gpus", "1")
    pid = job.wait_for_pid()
    driver = record_driver({"bursts": pid}, 30)
    job.finish()
    (OUT / "nvml_bursts.json").write_text(json.dumps(driver))
    found = stored("bursts")
    known = [next(iter(gpus.values())) for _, gpus in found["gpus"] if gpus]
    truth_s = float(job.lines[-1].split()[1])
    busy_s = known[-1].get("job_busy_usec", 0) / 1e6
    return {"truth_s": truth_s, "joblens_s": busy_s, "printed": job.lines, **found}


WORKFLOW = """name: given
jobs:
  - name: given_and_idle
    command: sleep 9
    resource_requirements: one
resource_requirements:
  - name: one
    num_cpus: 1
    memory: 1g
    num_gpus: 1
    runtime: PT1M
"""


def other_jobs() -> dict[str, Any]:
    """A job that asks for a GPU and leaves it idle, one that never touches it, and one that did not ask."""
    started = [
        Started("holds_idle", [sys.executable, WORKLOAD, "256", "0", "10"], "--gpus", "1"),
        Started("asks_never_uses", ["sleep", "33"], "--gpus", "1"),  # long enough for a finding
        Started("no_gpu", ["sleep", "9"]),
    ]
    spec = Path(STORE) / "given.yaml"
    spec.write_text(WORKFLOW)
    run = subprocess.run(
        [sys.executable, "-m", "joblens", "run", str(spec)],
        capture_output=True,
        text=True,
        check=False,
        cwd=STORE,
    )
    cpu_no_gpu = started[2].own_cpu_s()
    codes = {job.ident: job.finish() for job in started}
    found: dict[str, Any] = {}
    for job in started:
        attempt(found, job.ident, lambda job=job: stored(job.ident))  # type: ignore[misc]
    attempt(found, "given_and_idle", lambda: stored(_uuid_of("given_and_idle")))
    return {
        "exit_codes": codes,
        "cpu_s_of_joblens_beside_a_job_without_gpu": cpu_no_gpu,
        "workflow": [run.returncode, run.stdout[-1500:], run.stderr[-1500:]],
        "stored": found,
    }


def _uuid_of(name: str) -> str:
    store = open_store(load_settings().settings)
    uuid: str = next(record.job.uuid for record in store.records(HistoryQuery()) if record.job.name == name)
    return uuid


def costs_without() -> dict[str, Any]:
    """Measures own CPU of `joblens run` with 20 idle seconds, with and without the GPU probe;

    start-up included.
    """
    import resource

    result = {}
    for label, options in (("default probes", ()), ("without gpu", ("--probes", "-gpu"))):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = [sys.executable, "-m", "joblens", "run", "--quiet", *options, "--", "sleep", "20"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result[label] = {"cpu_s": used, "rc": done.returncode, "stderr": done.stderr[-500:]}
    return result


def attempt(results: dict[str, Any], name: str, measure: Callable[[], Any]) -> None:
    """One part that fails must not take the others with it: the machine is there for a few minutes only."""
    began = time.monotonic()
    try:
        results[name] = measure()
    except Exception:  # noqa: BLE001
        results[name] = {"failed": traceback.format_exc()}
    results.setdefault("seconds", {})[name] = round(time.monotonic() - began, 1)


def code_that_runs() -> dict[str, str]:
    """Returns the commit, if known, and a digest of the sources."""
    import hashlib

    root = Path(joblens.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    git = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        commit = ""
    return {"commit": commit, "sha256": digest.hexdigest()}


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"python": sys.version, "kernel": os.uname().release, "smi": smi()[:3000]}
    results["code"] = code_that_runs()
    results["pid_namespace"] = os.readlink("/proc/self/ns/pid")
    attempt(results, "two_jobs", two_jobs)
    samples = results["two_jobs"].pop("all_samples", {})
    (OUT / "results.json").write_text(json.dumps(results, indent=1))
    attempt(results, "other_jobs", other_jobs)
    (OUT / "results.json").write_text(json.dumps(results, indent=1))
    attempt(results, "bursts", bursts)
    (OUT / "results.json").write_text(json.dumps(results, indent=1))
    attempt(results, "costs", costs_without)
    (OUT / "samples.json").write_text(json.dumps(samples))
    (OUT / "results.json").write_text(json.dumps(results, indent=1))
    shown = {**results, "smi": "", "two_jobs": {**results["two_jobs"], "stored": "see samples.json"}}
    print(json.dumps(shown, indent=1)[-11000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
