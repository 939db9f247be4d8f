"""Processor and scheduler counters of one job."""

from typing import TYPE_CHECKING

from joblens.agent.instruments.table import Instruments, Watched, missing
from joblens.probes.host.perf_counters import PerfCountersProbe

if TYPE_CHECKING:
    from joblens.ports.probe import DetailProbe, Probe

_OF_A_CONTAINER = "counters are handed down by the first process, and a container's is the engine's to start"


def open_probe(watched: Watched, _instruments: Instruments) -> "Probe | DetailProbe":
    if watched.job.container is not None:
        return missing("counters", _OF_A_CONTAINER)
    return PerfCountersProbe(watched.main_pid, watched.pids)
