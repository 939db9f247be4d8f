"""The machine's energy counters, for one job. Most virtual machines have none, so that is found out before
anything else is imported."""

from typing import TYPE_CHECKING

from joblens.agent.instruments.table import Instruments, MissingProbe, Watched
from joblens.probes.proc.kernel_files import NO_ZONES, has_zones

if TYPE_CHECKING:
    from joblens.ports.probe import Probe

_FIELDS = ("host_energy_package_uj", "host_energy_dram_uj")


def open_probe(_watched: Watched, instruments: Instruments) -> "Probe":
    if not has_zones():
        return MissingProbe("energy", dict.fromkeys(_FIELDS, NO_ZONES))
    from joblens.probes.host.energy import EnergyCounters, EnergyProbe

    return EnergyProbe(instruments.shared("energy", EnergyCounters))
