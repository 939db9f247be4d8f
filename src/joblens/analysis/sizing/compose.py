"""Compose resources from measured jobs: limits above the peak, and reservations at the usual use."""

import statistics
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.numbers.rates import mean_cpu_percent
from joblens.analysis.sizing.amounts import memory_text, rounded_memory
from joblens.analysis.sizing.observations import Observation, observation_of
from joblens.analysis.sizing.rightsizing import Advice, Group, advise
from joblens.model.jobs.job import Record, Requirements, Status
from joblens.model.values.units import MIB, counted

_CPU_STEP = 0.25
_LEAST_CPUS = 0.25
_LEAST_MEMORY = 6 * MIB  # engines refuse less


class JobUse(Struct, frozen=True):
    """Peak and usual use of a job or profile."""

    peak: Observation
    mean_cores: float | None
    mean_bytes: float | None
    machine_cpus: int | None = None  # engines refuse more than there are


class ServiceAdvice(Struct, frozen=True, kw_only=True):
    """Resources of one service; None: unknown."""

    name: str
    jobs: int
    limit_cpus: float | None
    limit_memory_bytes: int | None
    reserved_cpus: float | None
    reserved_memory_bytes: int | None
    cpus_reason: str = ""
    memory_reason: str = ""


def use_of_record(record: Record, run: int) -> JobUse | None:
    """Returns the job's use; None: it has not ended, or nothing was measured."""
    peak, outcome = observation_of(record, run), record.outcome
    if peak is None or outcome is None:
        return None
    percent = mean_cpu_percent(outcome)
    return JobUse(
        peak,
        mean_cores=None if percent is None else percent / 100,
        mean_bytes=outcome.usage.memory_mean_bytes,
        machine_cpus=None if record.attempt is None else record.attempt.cpu_count,
    )


def use_of_profile(profile: dict[str, Any], name: str, run: int) -> JobUse:
    """Returns the use in a profile; missing numbers are unknown."""

    def number(part: str, key: str) -> float | None:
        value = (profile.get(part) or {}).get(key)
        return float(value) if isinstance(value, int | float) else None

    memory_mb, cpu = number("process_memory", "max_mb"), number("process_cpu", "max_percent")
    mean_mb, mean_cpu = number("process_memory", "mean_mb"), number("process_cpu", "mean_percent")
    peak = Observation(
        job=name,
        run=run,
        attempt=1,
        status=Status.SUCCESS,
        duration_s=float(profile.get("duration_seconds") or 0.0),
        memory_bytes=None if memory_mb is None else int(memory_mb * MIB),
        peak_cores=None if cpu is None else cpu / 100,
    )
    return JobUse(
        peak, None if mean_cpu is None else mean_cpu / 100, None if mean_mb is None else mean_mb * MIB
    )


def advise_service(name: str, uses: Sequence[JobUse]) -> ServiceAdvice:
    group = Group(name=name, current=Requirements(), observations=tuple(use.peak for use in uses))
    found: dict[str, Advice] = {part.resource: part for one in advise([group]) for part in one.advice}
    memory, cpus = found.get("memory"), found.get("cpus")
    limit_memory = None if memory is None else max(int(memory.recommended), _LEAST_MEMORY)
    limit_cpus = None if cpus is None else _at_most(cpus.recommended, [use.machine_cpus for use in uses])
    cpus_reason = "" if cpus is None else cpus.reason
    if cpus is not None and limit_cpus != cpus.recommended:
        cpus_reason = f"{cpus_reason.partition(',')[0]}, and the machine has no more"
    return ServiceAdvice(
        name=name,
        jobs=len(uses),
        limit_cpus=limit_cpus,
        limit_memory_bytes=limit_memory,
        reserved_cpus=_usual_cpus([use.mean_cores for use in uses], limit_cpus),
        reserved_memory_bytes=_usual_memory([use.mean_bytes for use in uses], limit_memory),
        cpus_reason=cpus_reason,
        memory_reason="" if memory is None else memory.reason,
    )


def compose_text(services: Sequence[ServiceAdvice]) -> str:
    """Returns a Compose file with only resources, to merge with another (docker compose -f A -f B)."""
    lines = ["services:"]
    for service in services:
        lines += _service_lines(service)
    return "\n".join(lines if services else ["services: {}"]) + "\n"


def service_name(text: str) -> str:
    """Returns a valid name of a service: letters, digits, dots, dashes and underscores."""
    name = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in text)
    return name.strip("-.") or "job"


def _service_lines(service: ServiceAdvice) -> list[str]:
    limits = _amounts(service.limit_cpus, service.limit_memory_bytes)
    reservations = _amounts(service.reserved_cpus, service.reserved_memory_bytes)
    jobs = counted(service.jobs, "job")
    lines = [f"  {_key(service.name)}:  # {jobs} measured"]
    if not limits and not reservations:
        return [f"  {_key(service.name)}: {{}}  # {jobs}, nothing measured"]
    lines += ["    deploy:", "      resources:"]
    if limits:
        reasons = dict(zip(("cpus", "memory"), (service.cpus_reason, service.memory_reason), strict=True))
        lines.append("        limits:")
        lines += [f"          {key}: {value}  # {reasons[key]}" for key, value in limits.items()]
    if reservations:
        lines.append("        reservations:")
        lines += [f"          {key}: {value}" for key, value in reservations.items()]
    return lines


def _amounts(cpus: float | None, memory_bytes: int | None) -> dict[str, str]:
    resources = {}
    if cpus is not None:
        resources["cpus"] = f"'{cpus:g}'"
    if memory_bytes is not None:
        resources["memory"] = memory_text(memory_bytes).upper()
    return resources


def _key(name: str) -> str:
    """Quotes a name that YAML would read as a number or keyword."""
    is_plain = name[0].isalpha() and name.lower() not in ("true", "false", "yes", "no", "on", "off", "null")
    return name if is_plain and name.lower() not in ("y", "n") else f"'{name}'"


def _at_most(cpus: float, machines: Sequence[int | None]) -> float:
    """Limits CPUs to those of the largest machine that ran one of the jobs."""
    return cpus if None in machines else min(cpus, max(there for there in machines if there is not None))


def _usual_cpus(means: Sequence[float | None], most: float | None) -> float | None:
    known = [mean for mean in means if mean is not None]
    if not known:
        return None
    usual = max(_LEAST_CPUS, -(-statistics.median(known) // _CPU_STEP) * _CPU_STEP)
    return usual if most is None else min(usual, most)


def _usual_memory(means: Sequence[float | None], most: int | None) -> int | None:
    known = [mean for mean in means if mean is not None]
    if not known:
        return None
    usual = max(_LEAST_MEMORY, rounded_memory(statistics.median(known)))
    return usual if most is None else min(usual, most)
