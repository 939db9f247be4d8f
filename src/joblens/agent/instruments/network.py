"""What one job sends and receives."""

import time
from collections.abc import Mapping

from joblens.agent.instruments.missing import MissingProbe
from joblens.agent.instruments.table import Instruments, Watched
from joblens.ports.probe import Probe
from joblens.probes.network.cgroup_network import (
    CgroupNetworkProbe,
    count_as_guest,
    count_here,
    go_on_counting,
    v2_group,
)
from joblens.probes.network.interfaces import InterfacesProbe
from joblens.probes.network.traffic_code import FIELDS


def open_probe(watched: Watched, _instruments: Instruments) -> Probe:
    """Bytes and packets, counted at its group."""
    group, why = v2_group(watched.groups)
    if why:
        return MissingProbe("network", dict.fromkeys(FIELDS, why))
    # The group is the job's own, also where it is a container that is going to be in it.
    begin = count_here if watched.is_own else count_as_guest
    if watched.is_resumed:
        begin = go_on_counting
    probe = CgroupNetworkProbe(group, begin)
    probe.close_descriptor()
    return probe


def open_interfaces(watched: Watched, _instruments: Instruments) -> Probe:
    """Those of its network namespace, should it have one."""
    if watched.is_resumed:
        return InterfacesProbe(watched.pids, age_s=max(0.0, time.time() - watched.job.created_at_us / 1e6))
    return InterfacesProbe(watched.pids, has_begun=not watched.is_own)


def network_counted(groups: Mapping[str, str]) -> Probe:
    """What an earlier owner of the job had counted at its groups, and the kernel has gone on counting."""
    group, why = v2_group(groups)
    if why:
        return MissingProbe("network", dict.fromkeys(FIELDS, why))
    probe = CgroupNetworkProbe(group, go_on_counting)
    probe.close_descriptor()
    return probe
