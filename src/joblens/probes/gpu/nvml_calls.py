"""NVML calls: one query at a time, with reasons for gaps; devices and their properties."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.errors import ProbeError
from joblens.model.jobs.details import GpuFacts

# Permanent errors: not supported, no permission, no such function.
_FOR_GOOD = frozenset({3, 4, 13})
_NO_SAMPLES = frozenset({0, 6})  # nothing new; the binding raises "success" for an empty list, too
_NOT_OPEN = 1  # NVML was shut down, or the driver reloaded
_GROWN = 7  # the list grew between asking for its size and for itself
_PROCESS_LISTS: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetComputeRunningProcesses": ("processes", "job_processes", "job_memory_bytes"),
    "nvmlDeviceGetGraphicsRunningProcesses": (),
    "nvmlDeviceGetMPSComputeRunningProcesses": (),
}


def load_library() -> Any:
    """The binding, with NVML initialised. Raises ProbeError with what to do."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise ProbeError("nvidia-ml-py is not installed: pip install 'joblens[gpu]'") from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise ProbeError(f"NVML: {error}") from None
    return library


class Question(Struct, frozen=True):
    """A call that is asked of a device, and what of GpuReading its answer is."""

    call: str
    arguments: tuple[int, ...]
    fields: Callable[[Any], dict[str, int]]
    names: tuple[str, ...]


class DeviceCalls:
    """All calls for one device. Unsupported questions are not repeated."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self.handle = handle
        self.unknown: dict[str, str] = {}  # number -> why
        self._refused: set[tuple[str, tuple[Any, ...]]] = set()

    def ask(self, call: str, *arguments: Any, numbers: tuple[str, ...] = ()) -> Any:
        """None: there is no answer, and `unknown` says why of each of `numbers`."""
        if (call, arguments) in self._refused:
            return None
        try:
            answer = getattr(self._library, call)(self.handle, *arguments)
        except self._library.NVMLError as error:
            if error.value == _NOT_OPEN:
                raise ProbeError(f"NVML: {error}") from None
            reason = f"{call}: {error}"
            if error.value in _FOR_GOOD:
                self._refused.add((call, arguments))
        except AttributeError:
            reason = f"{call}: not in this version of nvidia-ml-py"
            self._refused.add((call, arguments))
        else:
            for number in numbers:
                self.unknown.pop(number, None)
            return answer
        self.unknown.update(dict.fromkeys(numbers, reason))
        return None

    def read(self, questions: tuple[Question, ...]) -> dict[str, int]:
        fields: dict[str, int] = {}
        for question in questions:
            answer = self.ask(question.call, *question.arguments, numbers=question.names)
            if answer is not None:
                fields.update(question.fields(answer))
        return fields

    def running_processes(self) -> dict[int, int | None] | None:
        """pid -> bytes it has on the device; those that compute, draw, or share it through MPS. None:
        unavailable."""
        memory: dict[int, int | None] = {}
        lists = [self.ask(call, numbers=numbers) for call, numbers in _PROCESS_LISTS.items()]
        if lists[0] is None:
            return None
        for process in (process for listed in lists for process in listed or ()):
            known = memory.get(process.pid)
            used = process.usedGpuMemory
            memory[process.pid] = used if known is None else max(known, used or 0)
        return memory

    def process_samples(self, since: int) -> list[Any] | None:
        """Utilisation of each process since that moment (µs of the wall clock, as NVML stamps it). None:
        unavailable, and `unknown` says why."""
        call = "nvmlDeviceGetProcessUtilization"
        if (call, ()) in self._refused:
            return None
        reason = ""
        for _ in range(3):
            try:
                samples: list[Any] = getattr(self._library, call)(self.handle, since)
            except self._library.NVMLError as error:
                reason = f"{call}: {error}"
                if error.value == _GROWN:
                    continue
                if error.value not in _NO_SAMPLES:
                    if error.value in _FOR_GOOD:
                        self._refused.add((call, ()))
                    break
                samples = []
            for number in PROCESS_NUMBERS:
                self.unknown.pop(number, None)
            return [sample for sample in samples if sample.timeStamp > since]
        self.unknown.update(dict.fromkeys(PROCESS_NUMBERS, reason))
        return None


PROCESS_NUMBERS = ("job_utilization", "job_busy_usec", "job_encoder_utilization", "job_decoder_utilization")


def one(field: str, factor: int = 1) -> Callable[[Any], dict[str, int]]:
    return lambda answer: {field: int(answer) * factor}


def first_of_pair(field: str) -> Callable[[Any], dict[str, int]]:
    """Utilisation in percent, and its time, which is omitted."""
    return lambda answer: {field: int(answer[0]) * 100}


def question(
    call: str, *arguments: int, fields: Mapping[str, str] | Callable[[Any], dict[str, int]], names: str
) -> Question:
    """`fields`: attribute of the answer -> field, or what makes fields of the answer."""
    if callable(fields):
        return Question(call, arguments, fields, tuple(names.split()))
    pairs = tuple(fields.items())

    def take(answer: Any) -> dict[str, int]:
        return {field: int(getattr(answer, attribute)) for attribute, field in pairs}

    return Question(call, arguments, take, tuple(names.split()))


def now_us() -> int:
    return time.time_ns() // 1000


_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_NO_INSTANCE_SHARE = "NVML reports the utilization of a whole GPU, not of a MIG instance"
SOURCES = {
    "gpu": "NVML (nvidia-ml-py)",
    "gpu_process_memory": "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses",
    "gpu_process_utilization": "nvmlDeviceGetProcessUtilization",
    "gpu_energy": "nvmlDeviceGetTotalEnergyConsumption",
}


def find_devices(library: Any) -> Iterator[tuple[DeviceCalls, GpuFacts]]:
    """A GPU that is split comes before its instances."""
    driver_version = text_of(library.nvmlSystemGetDriverVersion())
    for index in range(library.nvmlDeviceGetCount()):
        calls = DeviceCalls(library, library.nvmlDeviceGetHandleByIndex(index))
        facts = _facts(calls, index, driver_version)
        yield calls, facts
        yield from _instances(library, calls, facts)


def _facts(calls: DeviceCalls, index: int, driver_version: str) -> GpuFacts:
    uuid = text_of(calls.ask("nvmlDeviceGetUUID"))
    pci = calls.ask("nvmlDeviceGetPciInfo")
    address = short_pci(text_of(pci.busId)) if pci is not None else ""
    capability = calls.ask("nvmlDeviceGetCudaComputeCapability")
    memory = calls.ask("nvmlDeviceGetMemoryInfo", numbers=("memory_total_bytes",))
    ecc = calls.ask("nvmlDeviceGetEccMode", numbers=("ecc_enabled",))
    return GpuFacts(
        id=uuid or address or f"nvidia{index}",
        vendor="nvidia",
        index=index,
        name=text_of(calls.ask("nvmlDeviceGetName")),
        uuid=uuid,
        pci=address,
        driver="nvidia",
        driver_version=driver_version,
        compute_capability=".".join(map(str, capability)) if capability is not None else "",
        memory_total_bytes=memory.total if memory is not None else None,
        power_limit_mw=calls.ask("nvmlDeviceGetEnforcedPowerLimit", numbers=("power_limit_mw",)),
        compute_mode=_COMPUTE_MODES.get(calls.ask("nvmlDeviceGetComputeMode"), ""),
        ecc_enabled=bool(ecc[0]) if ecc is not None else None,
        sources=SOURCES,
    )


def _instances(library: Any, calls: DeviceCalls, whole: GpuFacts) -> Iterator[tuple[DeviceCalls, GpuFacts]]:
    mode = calls.ask("nvmlDeviceGetMigMode")
    if mode is None or not mode[0]:
        return
    for number in range(calls.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
        handle = calls.ask("nvmlDeviceGetMigDeviceHandleByIndex", number)
        if handle is None:
            continue  # that place is free
        instance = DeviceCalls(library, handle)
        uuid = text_of(instance.ask("nvmlDeviceGetUUID"))
        memory = instance.ask("nvmlDeviceGetMemoryInfo", numbers=("memory_total_bytes",))
        unknown = dict.fromkeys(("utilization", "job_utilization", "job_busy_usec"), _NO_INSTANCE_SHARE)
        instance.unknown.update(unknown)
        yield (
            instance,
            replace(
                whole,
                id=uuid or f"{whole.id}/{number}",
                uuid=uuid,
                name=text_of(instance.ask("nvmlDeviceGetName")) or f"{whole.name} MIG {number}",
                memory_total_bytes=memory.total if memory is not None else None,
                power_limit_mw=None,
                parent=whole.id,
                unknown=unknown,
            ),
        )


def short_pci(address: str) -> str:
    """NVML writes eight digits of the domain, the kernel four."""
    domain, colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def text_of(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
