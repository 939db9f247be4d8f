"""The machine's energy counters, for one job."""

from joblens.agent.instruments import Instruments, Watched
from joblens.ports.probe import Probe
from joblens.probes.energy import EnergyCounters, EnergyProbe


def open_probe(_watched: Watched, instruments: Instruments) -> Probe:
    return EnergyProbe(instruments.shared("energy", EnergyCounters))
