"""What a machine is: its processor, memory, GPUs and system, read from files without touching a device."""

import os

from joblens.model.jobs.provenance import Hardware
from joblens.probes.gpu.signs import DRM_DRIVERS
from joblens.probes.proc.kernel_files import read_text

_CPU_NAMES = ("model name", "Model", "cpu model", "cpu", "Processor", "uarch")  # by architecture


def read_hardware(memory_bytes: int | None, proc: str = "/proc", sys: str = "/sys") -> Hardware:
    return Hardware(
        cpu_model=parse_cpu_model(_beginning(f"{proc}/cpuinfo")),
        architecture=os.uname().machine,
        cpus=os.cpu_count(),
        memory_bytes=memory_bytes,
        gpus=(*_nvidia_models(f"{proc}/driver/nvidia/gpus"), *_drm_models(f"{sys}/class/drm")),
    )


def parse_cpu_model(text: str) -> str:
    """'': the kernel of this architecture does not say"""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), " ".join(value.split()))
    return next((found[name] for name in _CPU_NAMES if found.get(name)), "")


def system_name(path: str = "/etc/os-release") -> str:
    """Debian GNU/Linux 12 (bookworm)"""
    text = read_text(path) or read_text("/usr/lib/os-release") or ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return os.uname().sysname


def _beginning(path: str) -> str:
    """A machine of many CPUs has a long one, which says the same of each."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _nvidia_models(folder: str) -> list[str]:
    models = []
    for name in _sorted(folder):
        for line in (read_text(f"{folder}/{name}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                models.append(value.strip())
    return models


def _drm_models(folder: str) -> list[str]:
    models = []
    for card in _sorted(folder):
        device = f"{folder}/{card}/device"
        driver = os.path.basename(os.path.realpath(f"{device}/driver"))
        if card.startswith("card") and "-" not in card and driver in DRM_DRIVERS:
            numbers = (read_text(f"{device}/{part}") or "" for part in ("vendor", "device"))
            name = (read_text(f"{device}/product_name") or "").strip()
            models.append(name or f"{driver} {':'.join(number.strip() for number in numbers)}")
    return models


def _sorted(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
