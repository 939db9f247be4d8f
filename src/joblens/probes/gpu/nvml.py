"""NVIDIA GPUs through NVML, for all jobs of this process at once.

A call of NVML costs up to some milliseconds, so only GPUs that a job was given or uses are read completely;
of the others just the list of processes, in which a job may appear. Everything together stays within 1 % of a
core: with many GPUs in use, readings are less frequent.

For a time span, NVML returns one number per active process: its share of the whole span. The time stamp says
when it was last active.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from joblens.model.errors import ProbeError
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.sample import GpuReading
from joblens.model.values.sums import sum_of_all
from joblens.probes.gpu.attribution import Followers, GpuProcess, GpuState, JobGpus
from joblens.probes.gpu.nvml_calls import (
    DeviceCalls,
    find_devices,
    first_of_pair,
    load_library,
    now_us,
    one,
    question,
)


class ProcessUtilization:
    """Shares times the time between two readings add up to `busy_usec`."""

    def __init__(self) -> None:
        self.uses: dict[int, GpuProcess] = {}

    def add(self, samples: Sequence[Any], elapsed_us: int, listed: Collection[int]) -> None:
        """Adds samples of the last `elapsed_us` with pid, and smUtil, encUtil and decUtil in percent.

        A process that is neither in them nor `listed` has ended, and is no longer reported.
        """
        idle = {
            pid: replace(use, utilization=0, encoder_utilization=0, decoder_utilization=0)
            for pid, use in self.uses.items()
            if pid in listed
        }
        by_pid: dict[int, list[Any]] = {}
        for sample in samples:
            by_pid.setdefault(sample.pid, []).append(sample)
        self.uses = idle | {pid: self._used(pid, own, elapsed_us) for pid, own in by_pid.items()}

    def _used(self, pid: int, samples: Sequence[Any], elapsed_us: int) -> GpuProcess:
        share = _mean([sample.smUtil for sample in samples])
        known = self.uses.get(pid)
        before_usec = known.busy_usec if known is not None else None
        return GpuProcess(
            utilization=share,
            busy_usec=(before_usec or 0) + share * elapsed_us // 10_000,
            encoder_utilization=_mean([sample.encUtil for sample in samples]),
            decoder_utilization=_mean([sample.decUtil for sample in samples]),
        )


def _mean(percents: Sequence[int]) -> int:
    """In hundredths of a percent."""
    return sum(percents) * 100 // len(percents)


_MACHINE = "pid:[4026531836]"  # the kernel's own number for the namespace everything began in
_REASON = (
    "the driver reports process ids of the machine, and joblens runs in its own pid namespace "
    "(a container): none of them can be matched to the job"
)
NO_PROCESS_LISTED = (
    "a GPU is at work and its driver lists no process: joblens runs in a pid namespace of its own (a "
    "container), from where it may not see them"
)


def foreign_pids(pids: Iterable[int], proc: str = "/proc") -> str:
    """Returns why process ids cannot be matched; '' if they can.

    In a pid namespace, some drivers translate the ids: if all of them exist here, they count as ours.
    """
    listed = list(pids)
    if not listed or not is_own_namespace(proc):
        return ""
    return "" if all(os.path.exists(f"{proc}/{pid}") for pid in listed) else _REASON


def is_own_namespace(proc: str = "/proc") -> bool:
    """Whether we see other numbers than the machine does."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _MACHINE
    except OSError:
        return False


_INTERVAL_S = 2.0
_SELDOM_S = 30.0  # rarely changes, or takes 20 ms to read
_BUDGET = 0.008  # of a core
_LONGEST_GAP_US = 6_000_000  # NVML keeps process use for only a few seconds
_RETRY_S = 60.0  # after NVML could not be had
_MEMORY_V2 = 0x2000028  # the version that separates memory reserved by the driver from used memory

_EACH_TIME = (
    question(
        "nvmlDeviceGetUtilizationRates",
        fields=lambda rates: {"utilization": rates.gpu * 100, "memory_utilization": rates.memory * 100},
        names="utilization memory_utilization",
    ),
    question("nvmlDeviceGetPowerUsage", fields=one("power_mw"), names="power_mw"),
    question("nvmlDeviceGetTotalEnergyConsumption", fields=one("energy_mj"), names="energy_mj"),
    question("nvmlDeviceGetTemperature", 0, fields=one("temperature_c"), names="temperature_c"),
    question("nvmlDeviceGetClockInfo", 1, fields=one("sm_clock_mhz"), names="sm_clock_mhz"),
    question("nvmlDeviceGetClockInfo", 2, fields=one("memory_clock_mhz"), names="memory_clock_mhz"),
    question(
        "nvmlDeviceGetCurrentClocksThrottleReasons", fields=one("throttle_reasons"), names="throttle_reasons"
    ),
)
_OF_A_MOMENT = ("_per_s", "_utilization")
_SELDOM = (
    question(
        "nvmlDeviceGetEncoderUtilization",
        fields=first_of_pair("encoder_utilization"),
        names="encoder_utilization",
    ),
    question(
        "nvmlDeviceGetDecoderUtilization",
        fields=first_of_pair("decoder_utilization"),
        names="decoder_utilization",
    ),
    question("nvmlDeviceGetFanSpeed", fields=one("fan_speed", 100), names="fan_speed"),
    question("nvmlDeviceGetTotalEccErrors", 0, 0, fields=one("ecc_corrected"), names="ecc_corrected"),
    question("nvmlDeviceGetTotalEccErrors", 1, 0, fields=one("ecc_uncorrected"), names="ecc_uncorrected"),
    question(
        "nvmlDeviceGetPcieThroughput", 1, fields=one("pcie_rx_bytes_per_s", 1000), names="pcie_rx_bytes_per_s"
    ),
    question(
        "nvmlDeviceGetPcieThroughput", 0, fields=one("pcie_tx_bytes_per_s", 1000), names="pcie_tx_bytes_per_s"
    ),
    question("nvmlDeviceGetCurrPcieLinkGeneration", fields=one("pcie_generation"), names="pcie_generation"),
    question("nvmlDeviceGetCurrPcieLinkWidth", fields=one("pcie_width"), names="pcie_width"),
)


class NvmlDriver:
    """`read` returns readings per job in `Followers`; None: skipped, to stay within the budget."""

    name = "NVML"
    interval_s = _INTERVAL_S

    def __init__(
        self,
        load: Callable[[], Any] = load_library,
        clock_us: Callable[[], int] = now_us,
        mono_s: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
    ) -> None:
        self.followers = Followers()
        self._load = load
        self._clock_us = clock_us  # NVML's time stamp of process use
        self._mono_s = mono_s
        self._library: Any = None
        self._devices: list[_Device] = []
        self._failure: Exception | None = None
        self._due_s = 0.0
        self._proc = proc
        self._lists_ours = False  # a process of a job has appeared in a list
        self._read_us: int | None = None  # when the last reading was, by the clock of the samples

    def read(self) -> dict[str, JobGpus] | None:
        now_s = self._mono_s()
        if now_s < self._due_s and self._failure is None:
            return None
        if self._library is None:
            self._open(now_s)
        began_ns = time.thread_time_ns()
        try:
            readings = self._readings_by_job()
        except ProbeError:  # NVML was lost: the next reading initializes it again
            self.close()
            raise
        cost_s = (time.thread_time_ns() - began_ns) / 1e9
        # A reading that is due shortly before the thread's next turn is taken on that turn.
        self._due_s = now_s + cost_s / _BUDGET - _INTERVAL_S / 2
        return readings

    def facts(self) -> list[GpuFacts]:
        """Of every device there is. Raises ProbeError where NVML cannot be had."""
        if self._library is None:
            self._open(self._mono_s())
        return [device.facts for device in self._devices]

    def close(self) -> None:
        library, self._library, self._devices = self._library, None, []
        if library is not None:
            try:
                library.nvmlShutdown()
            except library.NVMLError:
                pass

    def _open(self, now_s: float) -> None:
        if self._failure is not None and now_s < self._due_s:
            raise self._failure
        try:
            library = self._load()
            self._devices = [_Device(calls, facts) for calls, facts in find_devices(library)]
        except Exception as failure:
            self._failure, self._due_s = failure, now_s + _RETRY_S
            raise
        parents = {device.facts.parent for device in self._devices}
        for device in self._devices:
            device.is_split = device.facts.id in parents
        self._library, self._failure = library, None

    def _readings_by_job(self) -> dict[str, JobGpus]:
        followers = self.followers.now()
        listed = {device.facts.id: device.list_processes() for device in self._devices}
        if any(listed.values()):
            for follower in followers.values():
                known = follower.scan()
                self._lists_ours |= any(not known.isdisjoint(pids) for pids in listed.values())
        facts = [device.facts for device in self._devices]
        needed = set[str]().union(*(each.find_devices(listed, facts) for each in followers.values()))
        window = self._next_window()
        states = {
            device.facts.id: device.read(self._mono_s(), *window)
            for device in self._devices
            if device.facts.id in needed
        }
        foreign = self._why_unmatched([pid for processes in listed.values() for pid in processes])
        return {job: follower.tell(states, foreign) for job, follower in followers.items()}

    def _why_unmatched(self, listed: list[int]) -> str:
        if listed or self._lists_ours or not is_own_namespace(self._proc):
            return foreign_pids(listed, self._proc)
        return NO_PROCESS_LISTED if any(device.is_at_work() for device in self._devices) else ""

    def _next_window(self) -> tuple[int, int]:
        """(since when, how long): from the last reading to this one."""
        now_us = self._clock_us()
        since_us = self._read_us
        if since_us is None or since_us >= now_us:  # the first one, or the clock was set back
            since_us = now_us - int(_INTERVAL_S * 1e6)
        self._read_us = now_us
        return since_us, now_us - since_us


class _Device:
    def __init__(self, calls: DeviceCalls, facts: GpuFacts) -> None:
        self._calls = calls
        self.facts = facts
        self.is_split = False
        self._listed: dict[int, int | None] | None = {}
        self._utilization = ProcessUtilization()
        self._knows_use = False
        self._unknown_since_us: int | None = None  # when the first reading that failed would have begun
        self._seldom: dict[str, int] = {}
        self._seldom_due_s = float("-inf")

    def list_processes(self) -> dict[int, int | None]:
        # Processes on an instance are listed for the whole GPU too, and would be counted twice.
        self._listed = {} if self.is_split else self._calls.running_processes()
        return self._listed or {}

    def read(self, now_s: float, since_us: int, elapsed_us: int) -> GpuState:
        fields = self._calls.read(_EACH_TIME) | self._memory() | self._read_seldom(now_s)
        self._read_use(since_us, elapsed_us)
        if self._listed is not None:
            fields |= {"processes": len(self._listed)}
        memory = sum_of_all(self._listed.values()) if self._listed is not None else None
        reading = GpuReading(**fields, processes_memory_bytes=memory)
        if self._calls.unknown != self.facts.unknown:
            self.facts = replace(self.facts, unknown=dict(self._calls.unknown))
        return GpuState(facts=self.facts, reading=reading, processes=self._processes())

    def is_at_work(self) -> bool:
        return self._calls.read(_EACH_TIME[:1]).get("utilization", 0) > 0

    def _read_use(self, since_us: int, elapsed_us: int) -> None:
        """Reads process use; after a failed reading, the next one covers both intervals."""
        if self.facts.parent:
            return
        if self._unknown_since_us is not None and 0 < since_us - self._unknown_since_us < _LONGEST_GAP_US:
            elapsed_us += since_us - self._unknown_since_us
            since_us = self._unknown_since_us
        someone = bool(self._listed or self._utilization.uses)
        samples = self._calls.process_samples(since_us) if someone else []
        self._knows_use = samples is not None
        self._unknown_since_us = since_us if samples is None else None
        if samples is not None:
            self._utilization.add(samples, elapsed_us, self._listed or {})

    def _memory(self) -> dict[str, int]:
        names = ("memory_used_bytes", "memory_free_bytes")
        memory = self._calls.ask("nvmlDeviceGetMemoryInfo", _MEMORY_V2, numbers=names)
        if memory is None:
            memory = self._calls.ask("nvmlDeviceGetMemoryInfo", numbers=names)
        return {} if memory is None else {"memory_used_bytes": memory.used, "memory_free_bytes": memory.free}

    def _read_seldom(self, now_s: float) -> dict[str, int]:
        if now_s >= self._seldom_due_s:
            self._seldom_due_s = now_s + _SELDOM_S
            self._seldom = self._calls.read(_SELDOM)
            return self._seldom
        # Half a minute later momentary values are obsolete; the rest still holds.
        return {name: value for name, value in self._seldom.items() if not name.endswith(_OF_A_MOMENT)}

    def _processes(self) -> dict[int, GpuProcess] | None:
        if self._listed is None:
            return None
        nothing = GpuProcess(utilization=0, busy_usec=0, encoder_utilization=0, decoder_utilization=0)
        uses = self._utilization.uses
        if not self._knows_use:
            nothing, uses = GpuProcess(), dict.fromkeys(uses, GpuProcess())
        processes = {
            pid: replace(uses.get(pid, nothing), memory_bytes=memory, is_listed=True)
            for pid, memory in self._listed.items()
        }
        ended = {pid: replace(use, is_listed=False) for pid, use in uses.items() if pid not in processes}
        return {**processes, **ended}
