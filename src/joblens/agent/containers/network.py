"""What a container sends and receives, counted where the container is."""

from collections.abc import Mapping
from typing import Any

from joblens.agent.containers.probe import NoteReader
from joblens.model.errors import ProbeError
from joblens.ports.probe import Probe
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.network.traffic_code import FIELDS

NETWORK = "network"
_LATE = "from a moment after its start: the engine put the container into groups of its own"


class ContainerNetworkProbe:
    """`ours` counts at the job's group, above the container. An engine that put it elsewhere is found out
    when it runs; then the same is counted at its own group, from that moment on. What was counted stays when
    the group is gone."""

    name = NETWORK

    def __init__(self, ours: Probe, notes: NoteReader) -> None:
        self._ours = ours
        self._notes = notes
        self._own: Probe | None = None
        self._why_not = ""

    @property
    def sources(self) -> Mapping[str, str]:
        if not self._is_elsewhere():
            return self._ours.sources
        own = self._own.sources if self._own is not None else {}
        return {group: f"{source}, {_LATE}" for group, source in own.items()}

    @property
    def unknown(self) -> Mapping[str, str]:
        if not self._is_elsewhere():
            return self._ours.unknown
        if self._own is not None:
            return self._own.unknown
        why = self._why_not or "the container had ended before its packets could be counted"
        return dict.fromkeys(FIELDS, why)

    def read(self) -> dict[str, Any]:
        if not self._is_elsewhere():
            return self._ours.read()
        if self._own is None and not self._why_not:
            self._open_own()
        return self._own.read() if self._own is not None else {}

    def close(self) -> None:
        for probe in (self._ours, self._own):
            if probe is not None:
                probe.close()

    def _is_elsewhere(self) -> bool:
        note = self._notes.latest()
        return note is not None and bool(note.groups) and not note.is_below_ours

    def _open_own(self) -> None:
        from joblens.probes.network.cgroup_network import CgroupNetworkProbe, count_as_guest

        note = self._notes.latest()
        if note is None or note.has_ended:
            return
        try:
            self._own = CgroupNetworkProbe(note.groups[UNIFIED], count_as_guest)
        except (KeyError, OSError, ProbeError) as error:
            self._why_not = str(error) or type(error).__name__
