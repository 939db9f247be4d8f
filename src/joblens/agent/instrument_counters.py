"""Processor and scheduler counters of one job."""

from joblens.agent.instruments import Instruments, Watched
from joblens.ports.probe import Probe
from joblens.probes.perf_counters import PerfCountersProbe


def open_probe(watched: Watched, _instruments: Instruments) -> Probe:
    return PerfCountersProbe(watched.main_pid, watched.pids)
