"""Whether this machine has GPUs at all, seen in some microseconds and without touching one."""

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
    try:
        cards = [name for name in os.listdir(_DRM_SIGN) if name.startswith("card") and "-" not in name]
    except OSError:
        return False
    drivers = {os.path.basename(os.path.realpath(f"{_DRM_SIGN}/{card}/device/driver")) for card in cards}
    return not drivers.isdisjoint(DRM_DRIVERS)
