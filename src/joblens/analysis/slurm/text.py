"""Slurm's own text, read: times, sizes, node lists, and the lines of squeue and sinfo.
Those of sacct are read in model.sacct_text.

Each of its commands is asked for fixed fields between separators that occur in no name, so that neither the
version nor the reader's own SQUEUE_FORMAT changes what comes. A value that cannot be read is unknown."""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from joblens.model.clusters.slurm import Partition, QueuedJob
from joblens.model.errors import InputError
from joblens.model.values.node_lists import expand_node_list

SEPARATOR = "\x1f"
NOTHING = frozenset(("", "N/A", "None", "(null)", "Unknown", "NONE", "INVALID", "None assigned"))

SQUEUE_FIELDS = tuple(f"%{letter}" for letter in "iATrjkuPaqNDCVSlL")
SQUEUE_FORMAT = SEPARATOR.join(SQUEUE_FIELDS)
SINFO_FIELDS = tuple(f"%{letter}" for letter in "RPlLDcmGT")
SINFO_FORMAT = SEPARATOR.join(SINFO_FIELDS)

_CLOCK = re.compile(r"^(?:(\d+)-)?((?:\d+:){0,2}\d+(?:\.\d+)?)$")
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)([KMGTPE]?)i?B?$", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def slurm_seconds(text: str) -> float | None:
    """[DD-]HH:MM:SS, MM:SS.mmm, DD-HH, DD-HH:MM; None for UNLIMITED and the like."""
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    days, clock = match.groups()
    numbers = [float(word) for word in clock.split(":")]
    if days is None:
        return sum(number * 60.0**place for place, number in enumerate(reversed(numbers)))
    # Behind days the first is hours, however many follow.
    return int(days) * 86400 + sum(
        number * unit for number, unit in zip(numbers, (3600, 60, 1), strict=False)
    )


def slurm_clock(seconds: float) -> str:
    """As Slurm writes and reads durations: [DD-]HH:MM:SS."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def slurm_bytes(text: str, unit: str = "") -> int | None:
    """91596K, 1.50G, 200M; a plain number is in `unit`."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    power: int = _POWERS[(match[2] or unit).upper()]
    return round(float(match[1]) * 1024.0**power)


def slurm_instant_us(text: str) -> int | None:
    """Seconds since 1970 (SLURM_TIME_FORMAT=%s) or 2026-11-16T02:27:59, which is taken as UTC."""
    stripped = text.strip()
    if stripped.isdigit():
        return int(stripped) * 1_000_000 or None
    try:
        moment = dt.datetime.fromisoformat(stripped)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1_000_000)


def node_names(text: str) -> tuple[str, ...]:
    """n[1-3,7],gpu01 -> n1 n2 n3 n7 gpu01; what cannot be read stays as it is."""
    if text.strip() in NOTHING:
        return ()
    try:
        return expand_node_list(text)
    except InputError:
        return (text.strip(),)


def tres(text: str) -> dict[str, str]:
    """cpu=2,mem=200M,gres/gpu:a100=1."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def gpus_of(counts: Mapping[str, str]) -> int | None:
    """Of all kinds: gres/gpu is the sum, where it stands beside gres/gpu:a100."""
    if (whole := slurm_count(counts.get("gres/gpu", ""))) is not None:
        return whole
    kinds = [slurm_count(value) or 0 for name, value in counts.items() if name.startswith("gres/gpu:")]
    return sum(kinds) if kinds else None


def read_squeue(text: str) -> list[QueuedJob]:
    return [_queued(values) for values in _rows(text, len(SQUEUE_FIELDS))]


def _queued(values: Sequence[str]) -> QueuedJob:
    said = {field: "" if value.strip() in NOTHING else value.strip() for field, value in _paired(values)}
    return QueuedJob(
        job_id=said["%i"],
        raw_id=said["%A"],
        state=said["%T"].partition(" ")[0],
        reason=said["%r"],
        name=said["%j"],
        comment=said["%k"],
        user=said["%u"],
        partition=said["%P"],
        account=said["%a"],
        qos=said["%q"],
        nodes=node_names(said["%N"]),
        node_count=slurm_count(said["%D"]),
        cpus=slurm_count(said["%C"]),
        submitted_at_us=slurm_instant_us(said["%V"]),
        starts_at_us=slurm_instant_us(said["%S"]),
        time_limit_s=slurm_seconds(said["%l"]),
        time_left_s=slurm_seconds(said["%L"]),
    )


def _paired(values: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(SQUEUE_FIELDS, values, strict=True)


def read_sinfo(text: str) -> list[Partition]:
    found = []
    for values in _rows(text, len(SINFO_FIELDS)):
        said = dict(zip(SINFO_FIELDS, (value.strip() for value in values), strict=True))
        found.append(
            Partition(
                name=said["%R"],
                is_default=said["%P"].endswith("*"),
                max_time_s=slurm_seconds(said["%l"]),
                default_time_s=slurm_seconds(said["%L"]),
                nodes=slurm_count(said["%D"]) or 0,
                cpus_per_node=slurm_count(said["%c"].rstrip("+")) or 0,
                memory_per_node_bytes=slurm_bytes(said["%m"].rstrip("+"), "M") or 0,
                gpus_per_node=_gres_gpus(said["%G"]),
                state=said["%T"],
            )
        )
    return found


def _gres_gpus(text: str) -> int:
    """gpu:a100:4(S:0-1),nvme:1 -> 4; gpu:2 -> 2."""
    total = 0
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = part.split(":")
        if words[0] == "gpu":
            total += (slurm_count(words[-1]) or 0) if len(words) > 1 else 1
    return total


def _rows(text: str, count: int) -> Iterator[list[str]]:
    rows = numbered_rows(text.split("\n"), count, SEPARATOR)
    return (values for _, values in rows if len(values) == count)


def numbered_rows(lines: Iterable[str], count: int, separator: str) -> Iterator[tuple[int, list[str]]]:
    """A name or a comment may have a line break in it: lines are put together until a row has its values."""
    held, first = "", 0
    for number, ended_line in enumerate(lines, start=1):
        line = ended_line.rstrip("\r\n")
        if not held:
            if not line.strip():
                continue
            first = number
        held = f"{held}\n{line}" if held else line
        if held.count(separator) >= count - 1:
            # With -p a row ends with a separator too.
            values = held.split(separator)
            yield first, values[:-1] if len(values) == count + 1 and not values[-1] else values
            held = ""
    if held.strip():
        yield first, held.split(separator)


def slurm_count(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
