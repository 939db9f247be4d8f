"""What to ask for next time, as options to paste."""

import math

from joblens.model.units import GIB, MIB

MEMORY_HEADROOM = 1.2
TIME_HEADROOM = 1.5


def memory_option(needed_bytes: float) -> str:
    """`--memory 640m`: rounded up, so that small changes of a job do not change the advice."""
    step = 16 * MIB if needed_bytes <= 256 * MIB else 64 * MIB if needed_bytes <= 4 * GIB else 512 * MIB
    size = max(1, math.ceil(needed_bytes / step)) * step
    return f"--memory {size // GIB}g" if size % GIB == 0 else f"--memory {size // MIB}m"


def timeout_option(needed_s: float) -> str:
    """`--timeout 1h30m`."""
    step = 1 if needed_s <= 60 else 60 if needed_s <= 3600 else 600
    seconds = max(1, math.ceil(needed_s / step)) * step
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "--timeout " + "".join(f"{number}{unit}" for number, unit in parts if number)


def cpus_option(needed_cpus: float) -> str:
    return f"--cpus {max(1, math.ceil(needed_cpus))}"
