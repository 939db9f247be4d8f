"""What a slot's groups count, packets among it: read by its launcher after each job, and by its owner while
one runs."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.network.cgroup_network import NO_GROUP, CgroupNetworkProbe, v2_group
from joblens.probes.network.traffic_code import FIELDS

NO_PACKETS = dict.fromkeys(FIELDS, NO_GROUP)  # of a slot that has no groups


class SlotCounters:
    """A CgroupProbe with one thing more to read, which comes last in what the launcher has read."""

    name = "slot"

    def __init__(self, paths: Mapping[str, str], kind: str, network: CgroupNetworkProbe | None) -> None:
        """Resets the peak, which on cgroup v1 every reader sees: only the owner of the slot may do so.
        `network`: None where packets are not counted. It is closed with this one."""
        self._groups = CgroupProbe(paths, kind)
        self._network = network
        # The launcher is to have it too; -1: it cannot be reset.
        self.peak = self._open_peak()
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

    def reset_peak(self) -> None:
        """Where it can be: from here on it tells of what comes."""
        if self.peak >= 0:
            with contextlib.suppress(OSError):  # the group is gone; the next reading tells
                os.pwrite(self.peak, b"0", 0)

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """What the launcher has read."""
        if not self._is_counted or self._network is None:
            return self._groups.parse(contents)
        fields = self._groups.parse(contents[:-1])
        if contents[-1] != self._known[0]:  # most jobs have no network
            self._known = (contents[-1], self._network.parse(contents[-1]))
        fields.update(self._known[1])
        return fields

    def _open_peak(self) -> int:
        """Only trying tells whether this kernel lets it be reset, and this user. cgroup v2 keeps a reset peak
        for each open file (Linux 6.12): another open of the same path reads another one."""
        place = self.peak_place()
        if place < 0:
            return -1
        try:
            descriptor = os.open(self.files()[place], os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            os.pwrite(descriptor, b"0", 0)
        except OSError:
            os.close(descriptor)
            return -1
        self._groups.read_through(place, descriptor)
        return descriptor

    def close(self) -> None:
        self._groups.close()
        if self.peak >= 0:
            os.close(self.peak)
            self.peak = -1
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
