import pytest

from joblens.model.details import GpuFacts
from joblens.probes import gpu_devices
from joblens.probes.gpu_devices import ask_gpus, gpu_problems, list_gpus


def test_one_kind_that_cannot_be_asked_hides_no_other() -> None:
    def refuse() -> list[GpuFacts]:
        raise RuntimeError("NVML: Driver Not Loaded")

    card = GpuFacts(id="0000:00:02.0", vendor="intel", index=0)
    assert ask_gpus({"nvidia": refuse, "drm": lambda: [card]}) == (
        [card],
        {"nvidia": "NVML: Driver Not Loaded"},
    )


def test_a_machine_without_gpus_lists_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_devices, "has_nvidia", lambda: False)
    monkeypatch.setattr(gpu_devices, "has_drm", lambda: False)
    assert list_gpus() == []
    assert gpu_problems() == {}
