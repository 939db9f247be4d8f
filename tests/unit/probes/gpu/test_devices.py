from pathlib import Path

import pytest

from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu import devices as gpu_devices
from joblens.probes.gpu.devices import ask_gpus, list_gpus
from joblens.probes.proc.kernel_files import count_gpus


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
    assert ask_gpus() == ([], {})


def test_gpus_of_every_make_are_counted_without_touching_one(tmp_path: Path) -> None:
    dev, drm = tmp_path / "dev", tmp_path / "drm"
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "tty0", "7"):
        (dev / name).mkdir(parents=True)
    for card, driver in (("card0", "amdgpu"), ("card1", "ast"), ("card0-HDMI-A-1", "amdgpu")):
        (drm / card / "device").mkdir(parents=True)
        (drm / card / "device" / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert count_gpus(str(dev), str(drm)) == 3
    assert count_gpus(str(tmp_path / "none"), str(tmp_path / "none")) == 0
