"""What a slot's groups count, packets among it: read by its launcher after each job, and by its owner while
one runs."""

from collections.abc import Mapping
from typing import Any

from joblens.probes.cgroup import CgroupProbe
from joblens.probes.cgroup_network import NO_GROUP, CgroupNetworkProbe, v2_group
from joblens.probes.traffic_code import FIELDS

NO_PACKETS = dict.fromkeys(FIELDS, NO_GROUP)  # of a slot that has no groups


class SlotCounters:
    """A CgroupProbe with one thing more to read, which comes last in what the launcher has read."""

    name = "slot"

    def __init__(self, paths: Mapping[str, str], kind: str, network: CgroupNetworkProbe | None) -> None:
        """`network`: None where packets are not counted. It is closed with this one."""
        self._groups = CgroupProbe(paths, kind)
        self._network = network
        self._is_counted = network is not None and bool(network.sources)
        self._known: tuple[bytes, dict[str, int]] = (b"", {})
        self.sources = {**self._groups.sources, **(network.sources if network is not None else {})}
        self.unknown = {**self._groups.unknown, **_why_not_counted(paths, network)}

    def read(self) -> dict[str, Any]:
        fields = self._groups.read()
        if self._network is not None:
            fields.update(self._network.read())
        return fields

    def files(self) -> list[str]:
        return self._groups.files()

    def peak_place(self) -> int:
        return self._groups.peak_place()

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """What the launcher has read."""
        if not self._is_counted or self._network is None:
            return self._groups.parse(contents)
        fields = self._groups.parse(contents[:-1])
        if contents[-1] != self._known[0]:  # most jobs have no network
            self._known = (contents[-1], self._network.parse(contents[-1]))
        fields.update(self._known[1])
        return fields

    def close(self) -> None:
        self._groups.close()
        if self._network is not None:
            self._network.close()


def open_network(paths: Mapping[str, str]) -> CgroupNetworkProbe | None:
    """For a slot with these groups, before its launcher is started, which is to have the descriptor."""
    group, _ = v2_group(paths)
    return CgroupNetworkProbe(group) if group else None


def _why_not_counted(paths: Mapping[str, str], network: CgroupNetworkProbe | None) -> Mapping[str, str]:
    if network is not None:
        return network.unknown
    why = v2_group(paths)[1] or "not asked for: network is not among the chosen probes"
    return dict.fromkeys(FIELDS, why)
