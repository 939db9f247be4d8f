"""What one job sends and receives."""

from joblens.agent.group_places import is_job_group
from joblens.agent.instruments import Instruments, Watched
from joblens.agent.missing import MissingProbe
from joblens.ports.probe import Probe
from joblens.probes.cgroup_layout import read_layout
from joblens.probes.cgroup_network import (
    CgroupNetworkProbe,
    count_as_guest,
    count_here,
    go_on_counting,
    v2_group,
)
from joblens.probes.interfaces import InterfacesProbe
from joblens.probes.traffic_program import FIELDS


def open_probe(watched: Watched, _instruments: Instruments) -> Probe:
    """Bytes and packets, counted at its group."""
    group, why = v2_group(watched.groups)
    if why:
        return MissingProbe("network", dict.fromkeys(FIELDS, why))
    begin = count_here
    if watched.main_pid is None:
        # A job of ours was counted from its start, and what was missed could not be told any more.
        begin = go_on_counting if _is_ours(group) else count_as_guest
    probe = CgroupNetworkProbe(group, begin)
    probe.close_descriptor()
    return probe


def open_interfaces(watched: Watched, _instruments: Instruments) -> Probe:
    """Those of its network namespace, should it have one."""
    group, why = v2_group(watched.groups)
    is_visited = watched.main_pid is None and (bool(why) or not _is_ours(group))
    return InterfacesProbe(watched.pids, has_begun=is_visited)


def _is_ours(group: str) -> bool:
    return is_job_group(group, {hierarchy.mount_point for hierarchy in read_layout().hierarchies.values()})
