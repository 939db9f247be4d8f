"""Times, memory and generic resources as sbatch writes them, to and from base units."""

import math
import re

from joblens.model.errors import InputError
from joblens.model.values.units import MIB

_WALLTIME = re.compile(
    r"^(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d{1,2}))?(?::(?P<third>\d{1,2}))?$"
)
_UNLIMITED = frozenset({"UNLIMITED", "INFINITE"})
_MEMORY = re.compile(r"^(\d+(?:\.\d+)?)([KMGT]?)B?$", re.IGNORECASE)
_POWERS = {"K": 1, "": 2, "M": 2, "G": 3, "T": 4}  # a bare number is MiB
_GPU = "gpu"


def parse_walltime(text: str) -> float | None:
    """'90' and '90:00' (minutes), '1:30:00', '2-12', '2-12:30:00' -> seconds; UNLIMITED -> None."""
    if text.strip().upper() in _UNLIMITED:
        return None
    match = _WALLTIME.match(text.strip())
    if match is None:
        raise InputError(
            f"'{text}' is not a length of time for Slurm",
            hint="write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS",
        )
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"] is not None:
        return float(int(match["days"]) * 86400 + first * 3600 + second * 60 + third)
    if match["third"] is not None:
        return float(first * 3600 + second * 60 + third)
    return float(first * 60 + second)


def format_walltime(seconds: float) -> str:
    """Whole minutes, rounded up: that is how fine Slurm looks at it."""
    minutes = max(1, math.ceil(seconds / 60))
    days, rest = divmod(minutes, 1440)
    clock = f"{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{days}-{clock}" if days else clock


def parse_memory(text: str) -> int:
    """'180G', '4000' (MiB) -> bytes."""
    match = _MEMORY.match(text.strip())
    if match is None:
        raise InputError(f"'{text}' is not memory as Slurm writes it", hint="write a number and K, M, G or T")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])


def format_memory(count: int) -> str:
    """In MiB, rounded up."""
    return f"{max(1, -(-count // MIB))}M"


def gpus_in(gres: str) -> int:
    """'gpu:a100:2,shard:4' -> 2. Without a number it is one."""
    return sum(_gpu_count(part) for part in _parts(gres) if _is_gpu(part))


def with_gpus(gres: str, count: int) -> str:
    """The same generic resources, with so many GPUs; the kind of GPU that was written stays."""
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
