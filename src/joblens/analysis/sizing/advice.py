"""What to ask for next time, as options to paste."""

from joblens.analysis.sizing.amounts import (
    cpus_for,
    memory_for,
    memory_text,
    rounded_memory,
    rounded_runtime,
    runtime_for,
)
from joblens.analysis.sizing.observations import OOM_GROWTH, TIMEOUT_GROWTH


def memory_option(peak_bytes: float) -> str:
    """`--memory 640m`: the amount that right-sizing finds for a peak, too."""
    return f"--memory {memory_text(memory_for(peak_bytes))}"


def more_memory_option(limit_bytes: float, peak_bytes: float = 0) -> str:
    """Where it was not enough: how much it would have used is not known."""
    enough, more = memory_for(peak_bytes), limit_bytes * OOM_GROWTH
    return f"--memory {memory_text(rounded_memory(more) if more > enough else enough)}"


def more_time_option(limit_s: float, took_s: float) -> str:
    """`--timeout 1h30m`, where a time was up."""
    enough, more = runtime_for(took_s), limit_s * TIMEOUT_GROWTH
    seconds = rounded_runtime(more) if more > enough else enough
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "--timeout " + "".join(f"{number}{unit}" for number, unit in parts if number)


def cpus_option(needed_cpus: float) -> str:
    return f"--cpus {cpus_for(needed_cpus)}"
