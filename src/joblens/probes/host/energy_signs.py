"""Whether this machine tells of energy at all, seen in some microseconds."""

import os

POWERCAP = "/sys/class/powercap"
NO_ZONES = "this machine tells no energy: it has no RAPL counters under /sys/class/powercap"


def has_zones(root: str = POWERCAP) -> bool:
    try:
        return bool(os.listdir(root))
    except OSError:
        return False
