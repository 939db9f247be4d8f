"""Which GPUs jobs can be measured on here."""

import threading
from collections.abc import Callable

from joblens.model.jobs.capability import Capability
from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu.devices import ask_gpus

_PATIENCE_S = 10.0
_AREA = "numbers"
_KINDS = {"nvidia": "NVIDIA GPUs", "drm": "AMD and Intel GPUs"}
_FIXES = {
    "nvidia": "pip install 'joblens[gpu]', and see that nvidia-smi works",
    "drm": "see that /sys/class/drm can be read",
}
Answer = tuple[list[GpuFacts], dict[str, str]]


def gpu_capabilities(
    ask: Callable[[], Answer] = ask_gpus, patience_s: float = _PATIENCE_S
) -> list[Capability]:
    """A driver that hangs costs `patience_s`, and is told so."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), name="joblens-gpus", daemon=True)
    thread.start()
    thread.join(patience_s)
    if not answers:
        return [
            Capability(
                area=_AREA,
                name="gpu",
                available=False,
                reason=f"the GPU's driver has not answered for {patience_s:.0f} s",
                fix="see whether nvidia-smi answers; a driver that hangs often needs the machine restarted",
            )
        ]
    found, problems = answers[0]
    rows = [_device(facts) for facts in found]
    rows += [
        Capability(
            area=_AREA, name=_KINDS.get(kind, kind), available=False, reason=why, fix=_FIXES.get(kind, "")
        )
        for kind, why in problems.items()
    ]
    nothing = Capability(
        area=_AREA,
        name="gpu",
        available=False,
        applies=False,
        reason="this machine has no GPU that can be asked",
    )
    return rows or [nothing]


def _device(facts: GpuFacts) -> Capability:
    driver = f"{facts.driver} {facts.driver_version}"
    return Capability(
        area=_AREA,
        name=f"gpu {facts.index}" if not facts.parent else f"gpu {facts.index} {facts.uuid}",
        available=True,
        mechanism=f"{facts.name}: {facts.sources.get('gpu', '')}, driver {driver.strip()}",
    )
