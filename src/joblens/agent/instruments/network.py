"""Network instrument: bytes that one job sends and receives, also after its owner was killed."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from joblens.agent.instruments.table import Instruments, MissingProbe, Watched, missing, not_requested
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import INSTRUMENTS
from joblens.probes.network.cgroup_network import (
    FIELDS,
    CgroupNetworkProbe,
    InterfacesProbe,
    count_as_guest,
    count_here,
    go_on_counting,
    v2_group,
)

if TYPE_CHECKING:
    from joblens.ports.probe import Probe


def open_probe(watched: Watched, _instruments: Instruments) -> "Probe":
    """Counts bytes and packets at the job's group."""
    group, why = v2_group(watched.groups)
    if why:
        return MissingProbe("network", dict.fromkeys(FIELDS, why))
    # The group belongs to the job alone, also for a container that will join it.
    begin = count_here if watched.is_own else count_as_guest
    if watched.is_resumed:
        begin = go_on_counting
    probe = CgroupNetworkProbe(group, begin)
    probe.close_descriptor()
    return probe


def open_interfaces(watched: Watched, _instruments: Instruments) -> "Probe":
    """Reads the interfaces of its network namespace, if it has its own."""
    if watched.is_resumed:
        return InterfacesProbe(watched.pids, age_s=max(0.0, time.time() - watched.job.created_at_us / 1e6))
    return InterfacesProbe(watched.pids, has_begun=not watched.is_own)


def resumed_network(groups: Mapping[str, str]) -> "Probe":
    """Returns the counters that an earlier owner attached to the job's groups; the kernel has continued
    counting."""
    group, why = v2_group(groups)
    if why:
        return MissingProbe("network", dict.fromkeys(FIELDS, why))
    probe = CgroupNetworkProbe(group, go_on_counting)
    probe.close_descriptor()
    return probe


_KILLED = "joblens was killed while it measured the job, and no other process continued"


def orphan_instruments(job: Job, groups: Mapping[str, str]) -> tuple["Probe", ...]:
    """Returns probes for a job without an owner: the kernel has continued counting packets; the others have
    only the reason."""
    if not job.monitor:
        return ()
    left: list[Probe] = []
    for name, instrument in INSTRUMENTS.items():
        if not instrument.groups:
            continue
        is_wanted = job.probes is None or name in job.probes
        if is_wanted and name == "network":
            left.append(resumed_network(groups))
            continue
        stand_in = missing(name, _KILLED) if is_wanted else not_requested(name)
        assert isinstance(stand_in, MissingProbe)
        left.append(stand_in)
    return tuple(left)
