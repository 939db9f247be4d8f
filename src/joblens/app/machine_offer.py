"""What a run is offered: what the machine has, or what was said instead."""

from collections.abc import Collection

from joblens.engine.offer import Offer, Unfit, unfit
from joblens.model.errors import InputError, PlanError
from joblens.model.plan import Plan
from joblens.model.run import RunOptions
from joblens.model.units import format_bytes, format_duration
from joblens.probes.cgroup_layout import read_layout
from joblens.probes.machine import usable_cpus, usable_gpus, usable_memory_bytes

_MIB, _GIB = 1 << 20, 1 << 30
_UNKNOWN_MEMORY = _GIB
_SHOWN = 20


def machine_offer(options: RunOptions) -> Offer:
    layout = read_layout()
    return Offer(
        cpus=options.cpus if options.cpus is not None else usable_cpus(layout),
        memory_bytes=options.memory_bytes
        if options.memory_bytes is not None
        else less_reserve(usable_memory_bytes(layout) or _UNKNOWN_MEMORY),
        gpus=options.gpus if options.gpus is not None else usable_gpus(),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def less_reserve(total_bytes: int) -> int:
    """A part is left for the system and for joblens itself: a twentieth, but not less than 256 MiB where
    that is no large part of it, and not more than 4 GiB."""
    reserve = min(max(total_bytes // 20, 256 * _MIB), 4 * _GIB, total_bytes // 4)
    return total_bytes - reserve


def parse_gpus(text: str) -> tuple[str, ...]:
    """'2' offers the first two that are there, or 0 and 1; '0,2' or names offer just these."""
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and words[0].isdecimal():
        count = int(words[0])
        known = usable_gpus()
        return known[:count] if count <= len(known) else tuple(map(str, range(count)))
    is_below_zero = any(word.startswith("-") for word in words)
    if not all(words) or is_below_zero or len(set(words)) != len(words):
        raise InputError(f"--gpus {text}: expected a number, or devices such as 0,2")
    return tuple(words)


def check_fit(plan: Plan, offer: Offer, places: Collection[int] | None) -> None:
    """Raises PlanError with every job that could never start."""
    lacking = [one for one in unfit(plan, offer) if places is None or one.index in places]
    if not lacking:
        return
    lines = [_lack(plan, one) for one in lacking[:_SHOWN]]
    if len(lacking) > _SHOWN:
        lines.append(f"and {len(lacking) - _SHOWN} more")
    options = ", ".join(f"--{what}" for what in dict.fromkeys(one.what for one in lacking))
    raise PlanError(
        "jobs ask for more than there is to give:\n  " + "\n  ".join(lines),
        hint=f"ask for less in the file, or offer more than the machine seems to have with {options}",
    )


def _lack(plan: Plan, one: Unfit) -> str:
    name = plan.jobs[one.index].name
    if one.what == "memory":
        return f"{name}: needs {format_bytes(one.need)} of memory, {format_bytes(one.have)} are offered"
    if one.what == "time":
        return f"{name}: needs {format_duration(one.need)}, {format_duration(one.have)} are offered"
    what = "CPUs" if one.what == "cpus" else "GPUs"
    return f"{name}: needs {one.need:g} {what}, {one.have:g} are offered"
