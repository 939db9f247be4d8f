"""What can be known of a job's network here, tried at a group that exists for a moment."""

from collections.abc import Mapping

from joblens.model.errors import ProbeError
from joblens.model.jobs.capability import Capability
from joblens.probes.network.cgroup_network import MAY_NOT, NO_GROUP, NO_V2, CgroupNetworkProbe, v2_group
from joblens.probes.network.endpoints import group_ids
from joblens.probes.network.socket_dump import SocketDump

_FIXES = {
    NO_V2: "mount a cgroup v2 hierarchy (mount -t cgroup2 none DIR)",
    MAY_NOT: "run joblens as root, or give it CAP_BPF and CAP_NET_ADMIN",
}
_NEWER_KERNEL = "Linux 5.9 or later, with CONFIG_CGROUP_BPF and CONFIG_INET_DIAG"
_LISTING = "sock_diag, at moments up to 10 seconds apart: whom it is connected to"


def network_capabilities(groups: Mapping[str, str], group_advice: str) -> list[Capability]:
    """`groups`: of a job; empty where none could be made, and `group_advice` says how to get some."""
    fixes = {**_FIXES, NO_GROUP: group_advice}
    return [_row("network", *_packets(groups), fixes), _row("endpoints", *_sockets(groups), fixes)]


def _packets(groups: Mapping[str, str]) -> tuple[str, str]:
    """(by what, why not)"""
    group, why = v2_group(groups)
    if why:
        return "", why
    probe = CgroupNetworkProbe(group)
    probe.close()
    return probe.sources.get("network", ""), next(iter(probe.unknown.values()), "")


def _sockets(groups: Mapping[str, str]) -> tuple[str, str]:
    group, why = v2_group(groups)
    if why:
        return "", why
    try:
        dump = SocketDump()
        try:
            list(dump.sockets(group_ids(group)))
        finally:
            dump.close()
    except ProbeError as error:
        return "", str(error)
    return _LISTING, ""


def _row(name: str, mechanism: str, reason: str, fixes: Mapping[str, str]) -> Capability:
    return Capability(
        area="numbers",
        name=name,
        available=bool(mechanism),
        mechanism=mechanism,
        reason=reason,
        fix=fixes.get(reason, _NEWER_KERNEL) if reason else "",
    )
