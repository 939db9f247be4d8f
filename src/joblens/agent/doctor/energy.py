"""What doctor tells of energy and of the processor's and the scheduler's counters, tried for real."""

import os

from joblens.model.jobs.capability import Capability
from joblens.probes.host.energy import PACKAGE_FIELD, EnergyCounters
from joblens.probes.host.perf_counters import could_count

_LEVEL = "kernel.perf_event_paranoid"
_OPEN_TO_ALL = (
    "chmod a+r /sys/class/powercap/*/energy_uj, after every boot "
    "(its price: everybody here can then guess at what others compute)"
)


def energy_capabilities() -> list[Capability]:
    return [_energy(), *_counters()]


def _energy() -> Capability:
    counters = EnergyCounters()
    reason = counters.unknown.get(PACKAGE_FIELD, "")
    labels = ", ".join(counters.labels)
    counters.close()
    is_locked = "root only" in reason
    return Capability(
        area="numbers",
        name="energy",
        available=not reason,
        applies=not reason or is_locked,
        mechanism=f"powercap: {labels}" if not reason else "",
        reason=reason,
        fix=_OPEN_TO_ALL if is_locked else "",
    )


def _counters() -> list[Capability]:
    refusals = could_count(os.getpid())
    return [
        _counter("processor counters", refusals["instructions"], "perf_event_open instructions, cpu-cycles"),
        _counter("cpu migrations", refusals["cpu_migrations"], "perf_event_open cpu-migrations"),
    ]


def _counter(name: str, reason: str, mechanism: str) -> Capability:
    may_not = _LEVEL in reason
    return Capability(
        area="numbers",
        name=name,
        available=not reason,
        applies=not reason or may_not,
        mechanism="" if reason else mechanism,
        reason=reason,
        fix=f"sysctl {_LEVEL}=1, as root" if may_not else "",
    )
