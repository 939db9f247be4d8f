"""A systemd scope that holds all jobs of this process, for machines where it may not divide its own group.

The scope is delegated: joblens makes the groups of its jobs below it. The kernel gives controllers only to
groups below one without processes, so launchers stay in a leaf of it. A supervisor that systemd started in a
delegated unit moves itself into such a leaf (`own_group`)."""

import os
import threading

from joblens.agent.cgroups.groups import GroupFactory
from joblens.agent.cgroups.scope_terms import ScopeTerms
from joblens.agent.cgroups.systemd_manager import NO_LIMIT, ManagerError, Scope, SystemdManager
from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import read_bytes, read_text
from joblens.probes.proc.proc_files import parse_stat

LEAF = "joblens-self"


class OwnScope:
    """Creates the scope with the first launcher, and once more when the last process in it has ended since.
    Safe to use from several threads."""

    def __init__(self, terms: ScopeTerms, manager: SystemdManager | None = None) -> None:
        self._terms = terms
        self._manager = manager or SystemdManager()
        self._unit = ""
        self._factory: GroupFactory | None = None
        self._lock = threading.Lock()

    def take_in(self, pid: int) -> GroupFactory:
        """Moves a launcher of ours into the scope; groups of its jobs can be made until it ends. Raises
        ManagerError, AccountingUnavailable, ProbeError or OSError."""
        with self._lock:
            if self._factory is not None and self._attach(pid):
                return self._factory
            self._factory = None
            self._unit = f"joblens-{new_uuid()}.scope"
            self._create(pid)
            parent = enter_leaf(pid=pid)
            self._factory = GroupFactory.detect(parent, layout=read_layout(pid=pid))
            return self._factory

    def _attach(self, pid: int) -> bool:
        """False: the scope is gone."""
        try:
            self._manager.attach(self._unit, f"/{LEAF}", [pid])
        except ManagerError as error:
            # Without an answer nothing is known of the scope. A process that has ended cannot be attached.
            if not error.name or not is_alive(pid):
                raise
            return False
        return True

    def _create(self, pid: int) -> None:
        tasks_max = self._terms.tasks_max
        scope = Scope(
            unit=self._unit,
            slice=self._terms.slice,
            tasks_max=NO_LIMIT if tasks_max is None else tasks_max,
            description=f"Jobs of joblens (process {os.getpid()})",
        )
        self._manager.start_scope(scope, pid, lambda: self._is_inside(pid))

    def _is_inside(self, pid: int) -> bool:
        if (read_text(f"/proc/{pid}/cgroup") or "").rstrip().endswith(f"/{self._unit}"):
            return True
        if not is_alive(pid):  # it never comes
            raise ManagerError(f"the launcher (process {pid}) ended before it was in {self._unit}")
        return False


def is_alive(pid: int) -> bool:
    """False also for a zombie."""
    try:
        return parse_stat(read_bytes(f"/proc/{pid}/stat")).is_alive
    except (OSError, ValueError, ProbeError):
        return False


def enter_leaf(layout: CgroupLayout | None = None, pid: int | None = None) -> str:
    """Move a process of ours (default: this one) from its group into a leaf below; `layout` is that
    process's. Returns the group's path below the mount, to be given to GroupFactory.detect as parent. Refuses
    when any other process is in the group."""
    moved = pid or os.getpid()
    unified = (layout or read_layout(pid=str(moved))).unified
    if unified is None or unified.directory is None:
        raise AccountingUnavailable("this process is in no cgroup v2 group")
    others = set((read_text(f"{unified.directory}/cgroup.procs") or "").split()) - {str(moved)}
    if others:
        raise AccountingUnavailable(
            f"{unified.directory} holds {len(others)} other processes, which joblens does not move",
            hint="let the unit run nothing but joblens: in a script, start it with exec joblens …",
        )
    leaf = f"{unified.directory}/{LEAF}"
    try:
        os.makedirs(leaf, exist_ok=True)
        with open(f"{leaf}/cgroup.procs", "wb", buffering=0) as file:
            file.write(str(moved).encode())
    except OSError as error:
        raise AccountingUnavailable(f"cannot move into {leaf}: {error.strerror}") from error
    return unified.directory.removeprefix(unified.mount_point.rstrip("/")) or "/"


def own_group(layout: CgroupLayout | None = None) -> str:
    """The delegated group this process was started in, whether it stands there or in a leaf of it already
    (DelegateSubgroup=): a path below the mount, as GroupFactory.detect takes it."""
    unified = (layout or read_layout()).unified
    if unified is not None and unified.directory is not None and os.path.basename(unified.directory) == LEAF:
        above = os.path.dirname(unified.directory)
        return above.removeprefix(unified.mount_point.rstrip("/")) or "/"
    return enter_leaf(layout)
