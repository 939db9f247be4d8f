"""Slurm's notation of times, sizes and generic resources, as its commands print and options take it."""

import math
import re

from joblens.model.errors import InputError
from joblens.model.values.units import MIB

_CLOCK = re.compile(r"^(?:(\d+)-)?((?:\d+:){0,2}\d+(?:\.\d+)?)$")
_WALLTIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}")
_UNLIMITED = frozenset({"UNLIMITED", "INFINITE"})
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)([KMGTPE]?)i?B?$", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_GPU = "gpu"


def slurm_seconds(text: str) -> float | None:
    """Parses [DD-]HH:MM:SS, MM:SS.mmm, DD-HH, DD-HH:MM; None for UNLIMITED and similar words."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, clock = match.groups()
    numbers = [float(word) for word in clock.split(":")]
    if days is None:
        return sum(number * 60.0**power for power, number in enumerate(reversed(numbers)))
    # Behind days the first is hours, however many follow.
    return int(days) * 86400 + sum(
        number * unit for number, unit in zip(numbers, (3600, 60, 1), strict=False)
    )


def slurm_clock(seconds: float) -> str:
    """Formats a duration as [DD-]HH:MM:SS."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def parse_walltime(text: str) -> float | None:
    """Parses the time of an option: as `slurm_seconds`, but '90' is minutes. None: UNLIMITED."""
    written = text.strip()
    if written.upper() in _UNLIMITED:
        return None
    if _WALLTIME.fullmatch(written) is None:
        raise InputError(
            f"'{text}' is not a Slurm duration",
            hint="write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS",
        )
    return slurm_seconds(f"{written}:00" if written.isdecimal() else written)


def format_walltime(seconds: float) -> str:
    """Formats whole minutes, rounded up: Slurm's resolution."""
    return slurm_clock(60 * max(1, math.ceil(seconds / 60)))


def slurm_bytes(text: str, unit: str = "") -> int | None:
    """Parses 91596K, 1.50G, 200M; a plain number is in `unit`."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    power: int = _POWERS[(match[2] or unit).upper()]
    return round(float(match[1]) * 1024.0**power)


def parse_memory(text: str) -> int:
    """Parses the memory of an option: '180G', '4000' (MiB)."""
    size = slurm_bytes(text, "M")
    if size is None:
        raise InputError(f"'{text}' is not a Slurm memory size", hint="write a number and K, M, G or T")
    return size


def format_memory(count: int) -> str:
    """Formats MiB, rounded up."""
    return f"{max(1, -(-count // MIB))}M"


def gpus_in(gres: str) -> int:
    """Counts the GPUs in 'gpu:a100:2,shard:4' (2); without a number, 1."""
    return sum(_gpu_count(part) for part in _parts(gres) if _is_gpu(part))


def with_gpus(gres: str, count: int) -> str:
    """Returns the generic resources with this number of GPUs of the same kind."""
    others = [part for part in _parts(gres) if not _is_gpu(part)]
    if count <= 0:
        return ",".join(others)
    kinds = [part.split(":")[1] for part in _parts(gres) if _is_gpu(part) and len(part.split(":")) > 1]
    named = [kind for kind in kinds if not kind.isdecimal()]
    gpu = f"{_GPU}:{named[0]}:{count}" if named else f"{_GPU}:{count}"
    return ",".join([gpu, *others])


def _parts(gres: str) -> list[str]:
    # sinfo adds sockets or indexes in brackets: gpu:a100:4(S:0-1)
    plain = re.sub(r"\([^)]*\)", "", gres)
    words = (part.strip().removeprefix("gres/").removeprefix("gres:") for part in plain.split(","))
    return [word for word in words if word and word not in ("none", "N/A", "(null)")]


def _is_gpu(part: str) -> bool:
    return part.split(":", maxsplit=1)[0].split("=", maxsplit=1)[0] == _GPU


def _gpu_count(part: str) -> int:
    last = re.split("[:=]", part)[-1]
    return int(last) if last.isdecimal() else 1
