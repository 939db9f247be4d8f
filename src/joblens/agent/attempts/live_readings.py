"""Readings of running jobs for people who look at them now, however seldom they are sampled. Nothing of it is
kept, and the owner of the job does nothing for it."""

import os
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from joblens.agent.cgroups.placement import is_slot_group
from joblens.agent.measuring.meter import COUNTERS
from joblens.agent.runtime.owners import is_here, is_running, is_within_reach
from joblens.agent.slots.numbers import live_numbers
from joblens.model.errors import ProbeError
from joblens.model.jobs.job import Attempt, Record
from joblens.model.jobs.sample import Sample
from joblens.ports.probe import Probe
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import HostFacts
from joblens.probes.proc.process_tree import ProcessTreeProbe


class LiveReadings:
    """Of jobs on this machine whose counters this user may read."""

    def __init__(self, host: HostFacts) -> None:
        self._host = host
        self._probes: dict[str, Probe | None] = {}  # None: it cannot be read

    def read(self, record: Record) -> Sample | None:
        """Its counters since its start, as they are now. None: it does not run here, or has just ended."""
        uuid, attempt = record.job.uuid, record.attempt
        if attempt is None or record.status.is_final:
            return None
        if uuid not in self._probes:
            self._probes[uuid] = self._open(attempt)
        probe = self._probes[uuid]
        if probe is None:
            return None
        at_us = time.time_ns() // 1000
        try:
            fields = probe.read()
        except (ProbeError, OSError):
            self._probes[uuid] = None
            probe.close()
            return None
        return Sample(
            at_us=at_us, elapsed_us=max(0, at_us - attempt.started_at_us), **_since_start(fields, attempt)
        )

    def forget_others(self, uuids: Collection[str]) -> None:
        for uuid in [uuid for uuid in self._probes if uuid not in uuids]:
            probe = self._probes.pop(uuid)
            if probe is not None:
                probe.close()

    def close(self) -> None:
        self.forget_others(())

    def _open(self, attempt: Attempt) -> Probe | None:
        if not is_here(attempt.owner, self._host) or not is_within_reach(attempt.owner, self._host):
            return None
        groups = {key: path for key, path in attempt.groups.items() if os.path.isdir(path)}
        with suppress(ProbeError, OSError):
            if groups:
                return CgroupProbe(groups, attempt.accounting)
            if not attempt.groups and is_running(attempt.launcher_pid, attempt.launcher_start_ticks):
                return ProcessTreeProbe(attempt.launcher_pid or 0, include_root=False)
        return None


def _since_start(fields: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    fields.pop("devices", None)  # how much of it was there at the start is not in the record
    base = attempt.base
    if any(is_slot_group(path) for path in attempt.groups.values()):
        return live_numbers(fields, base)
    return {
        name: max(0, value - base.get(name, 0)) if name in COUNTERS and value is not None else value
        for name, value in fields.items()
    }
