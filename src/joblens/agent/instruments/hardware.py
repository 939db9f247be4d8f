"""Hardware instruments: counters of the processor and the scheduler, and energy counters of the machine."""

from typing import TYPE_CHECKING

from joblens.agent.instruments.table import Instruments, MissingProbe, Watched, missing
from joblens.probes.host.perf_counters import PerfCountersProbe
from joblens.probes.proc.kernel_files import NO_ZONES, has_zones

if TYPE_CHECKING:
    from joblens.ports.probe import DetailProbe, Probe

_OF_A_CONTAINER = "counters are inherited from the first process, which the engine starts in a container"
_ENERGY_FIELDS = ("host_energy_package_uj", "host_energy_dram_uj")


def open_counters(watched: Watched, _instruments: Instruments) -> "Probe | DetailProbe":
    if watched.job.container is not None:
        return missing("counters", _OF_A_CONTAINER)
    return PerfCountersProbe(watched.main_pid, watched.pids)


def open_energy(_watched: Watched, instruments: Instruments) -> "Probe":
    """Most virtual machines have none, which is checked before anything else is imported."""
    if not has_zones():
        return MissingProbe("energy", dict.fromkeys(_ENERGY_FIELDS, NO_ZONES))
    from joblens.probes.host.energy import EnergyCounters, EnergyProbe

    return EnergyProbe(instruments.shared("energy", EnergyCounters))
