"""Graphics cards of AMD and Intel as the kernel shows them under /sys/class/drm."""

import os
from collections.abc import Iterator

from msgspec import Struct

from joblens.model.jobs.details import GpuFacts
from joblens.probes.proc.kernel_files import drm_cards, names_in, read_text

_VENDORS = {"0x1002": "amd", "0x8086": "intel"}
_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # by GT/s
_NO_FILE = "its driver ({driver}) shows no such number under /sys/class/drm"
_PWM_MAX = 255
_NUMBERS = (
    "utilization",
    "memory_utilization",
    "memory_used_bytes",
    "memory_free_bytes",
    "temperature_c",
    "power_mw",
    "energy_mj",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "fan_speed",
    "pcie_generation",
    "pcie_width",
)


class Card(Struct, frozen=True, kw_only=True):
    facts: GpuFacts
    directory: str  # /sys/class/drm/cardN
    nodes: frozenset[str]  # names of its files in /dev/dri


def find_cards(sys: str = "/sys") -> list[Card]:
    """Returns the cards of AMD and Intel that have a driver, numbered by vendor."""
    root = f"{sys}/class/drm"
    cards: list[Card] = []
    for name, driver in drm_cards(root).items():
        vendor = _VENDORS.get(_word(f"{root}/{name}/device/vendor"))
        if vendor is not None:
            index = sum(card.facts.vendor == vendor for card in cards)
            cards.append(_card(root, name, driver, vendor, index))
    return cards


def _card(root: str, name: str, driver: str, vendor: str, index: int) -> Card:
    directory = f"{root}/{name}"
    device = f"{directory}/device"
    real_path = os.path.realpath(device)
    nodes = [node for node in names_in(root) if "-" not in node]
    pci = _pci(device) or os.path.basename(real_path)
    readable = read_card(directory)
    facts = GpuFacts(
        id=pci,
        vendor=vendor,
        index=index,
        name=_word(f"{device}/product_name", whole=True) or _name(vendor, device),
        uuid=_word(f"{device}/unique_id"),
        pci=pci,
        driver=driver,
        driver_version=_word(f"{device}/driver/module/version"),
        memory_total_bytes=_number(f"{device}/mem_info_vram_total"),
        power_limit_mw=_power_limit(directory),
        sources={
            "gpu": f"/sys/class/drm/{name}",
            "gpu_process_memory": "/proc/PID/fdinfo",
            "gpu_process_utilization": "/proc/PID/fdinfo",
        },
        unknown={number: _NO_FILE.format(driver=driver) for number in _NUMBERS if number not in readable},
    )
    return Card(
        facts=facts,
        directory=directory,
        nodes=frozenset(node for node in nodes if os.path.realpath(f"{root}/{node}/device") == real_path),
    )


def read_card(directory: str) -> dict[str, int]:
    """Returns the fields of GpuReading that this card's driver shows now."""
    device = f"{directory}/device"
    values: dict[str, int | None] = {
        "utilization": _scaled(f"{device}/gpu_busy_percent", 100, 1),
        "memory_utilization": _scaled(f"{device}/mem_busy_percent", 100, 1),
        "pcie_generation": _GENERATIONS.get(_word(f"{device}/current_link_speed")),
        "pcie_width": _number(f"{device}/current_link_width"),
        "sm_clock_mhz": _clock_mhz(directory),
        **_memory(device),
        **_sensors(device),
    }
    return {name: value for name, value in values.items() if value is not None}


def _memory(device: str) -> dict[str, int | None]:
    used, total = _number(f"{device}/mem_info_vram_used"), _number(f"{device}/mem_info_vram_total")
    if used is None:
        return {}
    return {"memory_used_bytes": used, "memory_free_bytes": total - used if total is not None else None}


def _sensors(device: str) -> dict[str, int | None]:
    """Converts the kernel's hwmon files: m°C, µW, µJ, Hz, and 0-255 for a fan."""
    values: dict[str, int | None] = {}
    for sensor in _hwmon(device):
        found = {
            # Cards without a sensor at the edge (xe, AMD's for servers) have one in the package.
            "temperature_c": _first(sensor, "temp1_input", "temp2_input"),
            "power_mw": _first(sensor, "power1_average", "power1_input"),
            "energy_mj": _first(sensor, "energy1_input", "energy2_input"),  # of the card, else its package
            "memory_clock_mhz": _scaled(f"{sensor}/freq2_input", 1, 1_000_000),
            "fan_speed": _scaled(f"{sensor}/pwm1", 10_000, _PWM_MAX),
            "sm_clock_mhz": _scaled(f"{sensor}/freq1_input", 1, 1_000_000),
        }
        values |= {name: value for name, value in found.items() if value is not None}
    return values


def _clock_mhz(directory: str) -> int | None:
    """Returns the clock of Intel's graphics; AMD's is a sensor."""
    for file in (
        "gt/gt0/rps_act_freq_mhz",
        "gt_act_freq_mhz",
        "device/tile0/gt0/freq0/act_freq",
    ):
        value = _number(f"{directory}/{file}")
        if value is not None:
            return value
    return None


def _power_limit(directory: str) -> int | None:
    for sensor in _hwmon(f"{directory}/device"):
        # If both exist, the cap is the short-term limit. 0: disabled.
        for file in ("power1_max", "power1_cap"):
            value = _scaled(f"{sensor}/{file}", 1, 1000)
            if value:
                return value
    return None


def _hwmon(device: str) -> Iterator[str]:
    """Yields the folders of sensors of the whole card; i915_gt0 is one of a part."""
    for name in names_in(f"{device}/hwmon"):
        if "_gt" not in _word(f"{device}/hwmon/{name}/name"):
            yield f"{device}/hwmon/{name}"


def _first(sensor: str, *files: str) -> int | None:
    """Returns a thousandth of the first file that exists."""
    values = (_scaled(f"{sensor}/{file}", 1, 1000) for file in files)
    return next((value for value in values if value is not None), None)


def _pci(device: str) -> str:
    for line in (read_text(f"{device}/uevent") or "").splitlines():
        if line.startswith("PCI_SLOT_NAME="):
            return line.partition("=")[2].strip()
    return ""


def _name(vendor: str, device: str) -> str:
    return f"{'AMD' if vendor == 'amd' else 'Intel'} GPU {_word(f'{device}/device')}".strip()


def _word(path: str, *, whole: bool = False) -> str:
    text = (read_text(path) or "").strip()
    return text if whole else text.partition(" ")[0]


def _number(path: str) -> int | None:
    text = (read_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _scaled(path: str, factor: int, divisor: int) -> int | None:
    value = _number(path)
    return None if value is None else value * factor // divisor
