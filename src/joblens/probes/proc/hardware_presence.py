"""Hardware presence: GPUs and energy counters, detected in microseconds without touching them."""

import functools
import os

DRM_DRIVERS = ("amdgpu", "i915", "xe")
_NVIDIA_SIGN = "/dev/nvidiactl"
_DRM_SIGN = "/sys/class/drm"


def has_nvidia() -> bool:
    return os.path.exists(_NVIDIA_SIGN)


@functools.cache
def has_drm() -> bool:
    """A card of a driver that tells something. Most servers have one that shows text, and no more."""
    return _drm_cards(_DRM_SIGN) > 0


def count_gpus(dev: str = "/dev", drm: str = _DRM_SIGN) -> int:
    """That a job could use, of any make."""
    nvidia = [name for name in _names(dev) if name.removeprefix("nvidia").isdecimal() and name[0] == "n"]
    return len(nvidia) + _drm_cards(drm)


def _drm_cards(drm: str) -> int:
    cards = [name for name in _names(drm) if name.startswith("card") and "-" not in name]
    drivers = [os.path.basename(os.path.realpath(f"{drm}/{card}/device/driver")) for card in cards]
    return sum(driver in DRM_DRIVERS for driver in drivers)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


POWERCAP = "/sys/class/powercap"
NO_ZONES = "this machine tells no energy: it has no RAPL counters under /sys/class/powercap"


def has_zones(root: str = POWERCAP) -> bool:
    try:
        return bool(os.listdir(root))
    except OSError:
        return False
