"""What a tool can compute on, and whether this machine has it."""

from joblens.app.wiring.bench_system import has_intel_gpu
from joblens.probes.host.machine import usable_gpus

DEVICES = ("cpu", "gpu", "intel-gpu")


def missing_device(device: str) -> str:
    """Why it cannot be used here; '' if it can."""
    if device == "gpu" and not usable_gpus():
        return "there is no NVIDIA GPU that may be used"
    return "there is no Intel GPU" if device == "intel-gpu" and not has_intel_gpu() else ""
