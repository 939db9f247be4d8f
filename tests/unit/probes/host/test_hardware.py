"""What a machine is, from its files."""

from pathlib import Path

import pytest

from joblens.probes.host.machine_load import parse_cpu_model, read_hardware, system_name


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (
            "processor\t: 0\nmodel name\t: AMD EPYC  9654\n\nprocessor\t: 1\nmodel name\t: other\n",
            "AMD EPYC 9654",
        ),
        ("processor : 0\nBogoMIPS : 50\nModel : Raspberry Pi 5\n", "Raspberry Pi 5"),
        ("processor : 0\ncpu : POWER9, altivec\n", "POWER9, altivec"),
        ("", ""),
    ],
)
def test_processors_of_several_architectures(text: str, model: str) -> None:
    assert parse_cpu_model(text) == model


def test_models_of_gpus_are_reported_without_touching_one(tmp_path: Path) -> None:
    for number, model in (("0000:01:00.0", "NVIDIA H200"), ("0000:02:00.0", "NVIDIA L4")):
        folder = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / number
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    card = tmp_path / "sys" / "class" / "drm" / "card0" / "device"
    card.mkdir(parents=True)
    (card / "driver").symlink_to("/drivers/amdgpu")
    (card / "product_name").write_text("MI300X\n")
    shows_text = tmp_path / "sys" / "class" / "drm" / "card1" / "device"
    shows_text.mkdir(parents=True)
    (shows_text / "driver").symlink_to("/drivers/ast")
    found = read_hardware(64, f"{tmp_path}/proc", f"{tmp_path}/sys")
    assert found.gpus == ("NVIDIA H200", "NVIDIA L4", "MI300X")
    assert (found.memory_bytes, found.cpu_model) == (64, "")


def test_the_name_of_the_system(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    assert system_name(str(release)) == "Debian GNU/Linux 12 (bookworm)"
