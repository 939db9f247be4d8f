"""The numbers of a job that runs in a container."""

from collections.abc import Collection, Mapping
from typing import Any

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.containers.note import ContainerNote, read_note
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import ContainerFacts, Details
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.containers.info import description

# What the kernel counts for the group alone in which it happened, not for those above it.
_OF_ITS_OWN_GROUP = (
    "cpu_periods",
    "cpu_throttled_periods",
    "cpu_throttled_usec",
    "oom_kills",
    "memory_limit_events",
    "pids_limit_events",
)
# What it held the moment it ended. The engine takes its files away, and with them their page cache.
_HELD_AT_ITS_END = (
    "memory_current_bytes",
    "memory_anon_bytes",
    "memory_file_bytes",
    "memory_kernel_bytes",
    "memory_shmem_bytes",
    "memory_file_mapped_bytes",
    "memory_file_dirty_bytes",
    "memory_file_writeback_bytes",
)
_NOT_YET = "the container's control group has not been seen"
_GONE = "the container's control group was gone before its last numbers could be read"


class NoteReader:
    """The client's note, read again as long as it may change."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._note: ContainerNote | None = None

    def latest(self) -> ContainerNote | None:
        if self._note is None or not (self._note.has_ended and self._note.is_removed):
            self._note = read_note(self._path) or self._note
        return self._note


class ContainerProbe:
    """Totals come from the job's own groups, above those of the container: they are still there when the
    container is gone. Where the engine put it elsewhere (`groups` None, or not used) they come from the
    container's groups, and at its end from what its client read the moment it ended."""

    name = "container"

    def __init__(self, groups: JobGroups | None, notes: NoteReader) -> None:
        self._notes = notes
        self._ours = CgroupProbe(groups.paths, groups.kind) if groups is not None else None
        self._own: CgroupProbe | None = None
        self._lost_the_end = False

    @property
    def sources(self) -> Mapping[str, str]:
        probe = self._counting()
        return probe.sources if probe is not None else {}

    @property
    def unknown(self) -> Mapping[str, str]:
        probe = self._counting()
        return probe.unknown if probe is not None else {"cpu": _NOT_YET, "memory": _NOT_YET}

    @property
    def lower_bounds(self) -> Collection[str]:
        return tuple(self.sources) if self._lost_the_end else ()

    def read(self) -> dict[str, Any]:
        note = self._notes.latest()
        own = self._read_own(note)
        if self._ours is None or (note is not None and note.groups and not note.is_below_ours):
            fields = own
        else:
            fields = self._ours.read()
            for name in (*_OF_ITS_OWN_GROUP, *(_HELD_AT_ITS_END if note and note.has_ended else ())):
                if name in own:
                    fields[name] = max(own[name], fields.get(name) or 0)
        if note is not None and note.oom_killed:
            fields["oom_kills"] = max(1, fields.get("oom_kills") or 0)
        return fields

    def close(self) -> None:
        for probe in (self._ours, self._own):
            if probe is not None:
                probe.close()

    def _counting(self) -> CgroupProbe | None:
        note = self._notes.latest()
        if note is not None and note.groups and not note.is_below_ours:
            return self._own
        return self._ours or self._own

    def _read_own(self, note: ContainerNote | None) -> dict[str, Any]:
        if note is None or not note.groups:
            return {}
        if note.has_ended:
            self._lost_the_end = not note.last and not note.is_below_ours
            return dict(note.last)
        try:
            if self._own is None:
                self._own = CgroupProbe(note.groups, note.layout)
            return self._own.read()
        except ProbeError:  # it has just ended; its client is about to say so
            return {}


class ContainerFactsProbe:
    """What is known of the container itself, told again whenever there is more."""

    name = "container"
    interval_s = 0.5

    def __init__(self, notes: NoteReader) -> None:
        self._notes = notes
        self._told: ContainerNote | None = None

    def read(self) -> Details:
        note = self._notes.latest()
        if note is None or not note.id or note == self._told:
            return Details()
        self._told = note
        return Details(container=facts_of(note))

    def close(self) -> None:
        pass


def facts_of(note: ContainerNote) -> ContainerFacts:
    main = next(iter(note.groups.values()), "")
    return ContainerFacts(
        engine=note.engine,
        engine_version=note.engine_version,
        id=note.id,
        image=note.image,
        cgroup=note.groups.get("unified", main),
        startup_s=note.startup_s,
        overhead=note.overhead,
        unknown=note.unknown,
        **description(note),
    )
