"""List of all GPUs of this machine, queried once."""

from collections.abc import Callable, Mapping

from joblens.model.jobs.details import GpuFacts
from joblens.probes.proc.kernel_files import has_drm, has_nvidia


def list_gpus() -> list[GpuFacts]:
    """Returns the GPUs that could be queried. Takes as long as the drivers need."""
    found, _ = ask_gpus()
    return found


def ask_gpus(
    kinds: Mapping[str, Callable[[], list[GpuFacts]]] | None = None,
) -> tuple[list[GpuFacts], dict[str, str]]:
    """Returns GPUs, and kinds of GPUs that exist and cannot be queried -> reason."""
    found: list[GpuFacts] = []
    problems: dict[str, str] = {}
    for kind, ask in (kinds if kinds is not None else _kinds()).items():
        try:
            found += ask()
        except Exception as error:  # noqa: BLE001 - reported, not raised
            problems[kind] = str(error) or type(error).__name__
    return found, problems


def _kinds() -> dict[str, Callable[[], list[GpuFacts]]]:
    kinds: dict[str, Callable[[], list[GpuFacts]]] = {}
    if has_nvidia():
        kinds["nvidia"] = _ask_nvml
    if has_drm():
        kinds["drm"] = _ask_drm
    return kinds


def _ask_nvml() -> list[GpuFacts]:
    from joblens.probes.gpu.nvml import NvmlDriver

    driver = NvmlDriver()
    try:
        return driver.facts()
    finally:
        driver.close()


def _ask_drm() -> list[GpuFacts]:
    from joblens.probes.gpu.drm_sysfs import find_cards

    return [card.facts for card in find_cards()]
