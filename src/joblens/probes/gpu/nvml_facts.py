"""What NVML says of a GPU once, and which devices there are: GPUs, and the instances a GPU is split into."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu.nvml_calls import DeviceCalls

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_NO_INSTANCE_SHARE = "NVML tells the utilisation of a whole GPU, not of a MIG instance"
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
