"""Control groups of one job: creates, limits, reads and removes them, also those left by killed processes.

Groups are in `<own group>/joblens-<uid>/<name>` in each hierarchy. Any number of joblens processes share that
parent; each creates it if missing and tries to remove it when done, so every step must tolerate another
process that does the same at that moment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from joblens.agent.cgroups.placement import (
    GROUP_HINT,
    LEAF,
    GroupPlacement,
    divide,
    enable_controllers,
    find_placement,
    is_job_group,
    parse_group_name,
    shared_parent,
    spool_mark,
    undo_division,
)
from joblens.agent.runtime.ownership import pid_namespace
from joblens.files.private import age_s
from joblens.files.processes import is_running
from joblens.model.errors import AccountingUnavailable, ProbeError
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from joblens.probes.proc.kernel_files import list_pids, subgroups

if TYPE_CHECKING:
    from joblens.agent.cgroups.placement import GroupName
    from joblens.model.jobs.job import Record
    from joblens.ports.store import Store


_CPU_PERIOD_USEC = 100_000
_CPU_QUOTA_FLOOR_USEC = 1_000  # minimum of the kernel
_CREATE_TRIES = 50
_REMOVE_TIMEOUT_S = 1.0
_KILL_TIMEOUT_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_RECLAIM_BYTES = 1 << 40  # more than any group has


class GroupFactory:
    """Creates job groups in the directories found on this machine."""

    def __init__(self, placement: GroupPlacement) -> None:
        self.kind = placement.kind
        self.gaps: Mapping[str, str] = placement.gaps  # controller -> why job groups lack it
        self._placement = placement

    @classmethod
    def detect(
        cls, parent: str | None = None, *, layout: CgroupLayout | None = None, may_borrow: bool = True
    ) -> GroupFactory:
        """`parent` is a path below each mount; default: chosen from this process's own group
        (`placement`). Inside a job of joblens, or with `may_borrow` alone in a delegated unit, this
        process and all others of the group move into a leaf; `close` undoes the latter. Raises
        AccountingUnavailable with the reason and the fix."""
        layout = layout or read_layout()
        placement = find_placement(layout, parent, may_borrow=may_borrow)
        if not placement.divided:
            return cls(placement)
        reason = divide(placement.divided)
        if not reason:
            return cls(placement)
        if placement.is_borrowed:
            undo_division(placement.divided)
        # Read the layout again: this process may be in the leaf by now.
        try:
            return cls(find_placement(read_layout(), parent, may_divide=False))
        except AccountingUnavailable as error:
            raise AccountingUnavailable(
                f"no cgroup can be made for jobs: {reason}", hint=error.hint
            ) from None

    def close(self) -> None:
        """Restores a unit's group, unless jobs still run in it."""
        if self._placement.is_borrowed:
            undo_division(self._placement.divided)

    @property
    def parents(self) -> list[str]:
        """Returns the parent of job groups in each hierarchy."""
        bases = (*self._placement.bases.values(), *self._placement.spare.values())
        return list(dict.fromkeys(map(shared_parent, bases)))

    def create(self, name: str) -> JobGroups:
        """Creates empty groups without limits. If the name exists, a number is added."""
        candidate = name
        for attempt in range(1, _CREATE_TRIES + 1):
            groups = JobGroups(self.kind, {}, spare=self._placement.spare)
            try:
                for key, base in self._placement.bases.items():
                    groups.paths[key] = _make_group(base, candidate, known=groups.paths.values())
            except OSError as error:
                groups.remove()
                if isinstance(error, FileExistsError):
                    candidate = f"{name}-{attempt}"
                    continue
                raise AccountingUnavailable(
                    f"cannot make a group for the job ({error})",
                    hint=GROUP_HINT,
                ) from error
            if UNIFIED in groups.paths:
                # After creating the group: while it exists, its parent cannot be removed.
                enable_controllers(os.path.dirname(groups.paths[UNIFIED]))
            return groups
        raise AccountingUnavailable(f"no free name for a group '{name}' after {_CREATE_TRIES} tries")


class JobGroups:
    """Control groups of one job. `paths`: hierarchy -> directory; co-mounted v1 controllers share one.
    `spare`: hierarchies that are joined only if a limit needs them."""

    def __init__(self, kind: str, paths: Mapping[str, str], spare: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.paths = dict(paths)
        self.limit_gaps: dict[str, str] = {}  # limit -> why it is not enforced by these groups
        self._spare = dict(spare or {})

    @classmethod
    def open(cls, kind: str, paths: Mapping[str, str]) -> JobGroups:
        """Opens groups that an earlier process made. Refuses directories that joblens cannot have made
        for this user: everything in them may be killed next, and the paths may be forged."""
        mounts = {hierarchy.mount_point for hierarchy in read_layout().hierarchies.values()}
        for path in paths.values():
            if not is_job_group(path, mounts):
                raise ProbeError(f"{path} is not a job group of joblens")
        return cls(kind, paths)

    def exists(self) -> bool:
        return any(os.path.isdir(path) for path in self.paths.values())

    def attach_files(self) -> list[str]:
        """Returns the files to which the child that becomes the job writes '0' before exec. A job that
        was divided for inner jobs takes processes only in its leaf."""
        leaves = ((path, f"{path}/{LEAF}") for path in dict.fromkeys(self.paths.values()))
        return [f"{leaf if os.path.isdir(leaf) else path}/cgroup.procs" for path, leaf in leaves]

    # limits

    def set_limits(
        self, cpus: float | None = None, memory_bytes: int | None = None, pids: int | None = None
    ) -> dict[str, str]:
        """Returns limit -> mechanism for limits that the kernel now enforces; `limit_gaps` has the
        reasons for the others. Call it before the job joins."""
        mechanisms = {
            "cpus": self._limit_cpus(cpus) if cpus is not None else None,
            "memory": self._limit_memory(memory_bytes) if memory_bytes is not None else None,
            "pids": self._limit_pids(pids) if pids is not None else None,
        }
        return {limit: f"cgroup {file}" for limit, file in mechanisms.items() if file is not None}

    def _limit_cpus(self, cpus: float) -> str | None:
        quota = max(_CPU_QUOTA_FLOOR_USEC, round(cpus * _CPU_PERIOD_USEC))
        if "cpu" not in self.paths and "cpu" in self._spare:
            name = os.path.basename(next(iter(self.paths.values())))
            try:
                self.paths["cpu"] = _make_group(self._spare["cpu"], name)
            except OSError as error:
                self.limit_gaps["cpus"] = f"no cpu group can be made: {error.strerror}"
                return None
        if "cpu" in self.paths:
            self._write("cpus", "cpu", "cpu.cfs_period_us", _CPU_PERIOD_USEC)
            return self._write("cpus", "cpu", "cpu.cfs_quota_us", quota)
        return self._write("cpus", UNIFIED, "cpu.max", f"{quota} {_CPU_PERIOD_USEC}")

    def _limit_memory(self, memory_bytes: int) -> str | None:
        """Disables swap too: otherwise a job could exceed its memory by paging out."""
        if "memory" in self.paths:
            limited = self._write("memory", "memory", "memory.limit_in_bytes", memory_bytes)
            swap_file = "memory.memsw.limit_in_bytes"
            if limited and os.path.exists(f"{self.paths['memory']}/{swap_file}"):
                # One page more than the memory: if they were equal, the kernel would hit this limit
                # first, which does not count as reaching the memory limit.
                self._write("memory_swap", "memory", swap_file, memory_bytes + _PAGE_BYTES)
            return limited
        limited = self._write("memory", UNIFIED, "memory.max", memory_bytes)
        if limited and os.path.exists(f"{self.paths[UNIFIED]}/memory.swap.max"):
            self._write("memory_swap", UNIFIED, "memory.swap.max", 0)
        return limited

    def _limit_pids(self, pids: int) -> str | None:
        return self._write("pids", "pids" if "pids" in self.paths else UNIFIED, "pids.max", pids)

    def _write(self, limit: str, key: str, file: str, value: int | str) -> str | None:
        directory = self.paths.get(key)
        reason = _write_file(f"{directory}/{file}", value) if directory else f"the job has no {key} group"
        if reason:
            self.limit_gaps[limit] = reason
            return None
        return file

    # processes

    def pids(self) -> list[int]:
        """Returns live processes of the job, including those in groups it made below its own."""
        return list_pids(self._main_path())

    def is_empty(self, spare: Collection[int] = ()) -> bool:
        return not (self._pids_anywhere() - set(spare))

    def signal(self, number: int, spare: Collection[int] = ()) -> int:
        """Signals every process of the job except `spare`; returns how many. A pid that was reused in
        between is not hit: the second listing is made while the processes are held."""
        held: dict[int, int] = {}
        try:
            for pid in self._pids_anywhere() - set(spare):
                try:
                    held[pid] = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
            sent = 0
            for pid in self._pids_anywhere() & held.keys():
                try:
                    signal.pidfd_send_signal(held[pid], number)
                    sent += 1
                except (ProcessLookupError, PermissionError):
                    continue
            return sent
        finally:
            for descriptor in held.values():
                os.close(descriptor)

    def kill(self, spare: Collection[int] = (), timeout_s: float = _KILL_TIMEOUT_S) -> bool:
        """Kills every process of the job except `spare`, including new ones, and waits up to
        `timeout_s`; returns True if none is left."""
        if spare or _write_file(f"{self._main_path()}/cgroup.kill", 1):
            self._stop_forking(pids_max=len(spare))
        return self._kill_until_empty(spare, timeout_s)

    def _stop_forking(self, pids_max: int) -> None:
        """Stops forks, so that killing processes one by one terminates: v1 forks hit the pids limit, and
        a frozen v2 group does not run but can be killed."""
        if "pids" in self.paths:
            _write_file(f"{self.paths['pids']}/pids.max", pids_max)
        elif not pids_max and UNIFIED in self.paths:
            _write_file(f"{self.paths[UNIFIED]}/cgroup.freeze", 1)

    def _kill_until_empty(self, spare: Collection[int], timeout_s: float) -> bool:
        deadline, pause = time.monotonic() + timeout_s, 0.0005
        while not self.is_empty(spare):
            if time.monotonic() > deadline:
                return False
            self.signal(signal.SIGKILL, spare)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return True

    def _main_path(self) -> str:
        return self.paths.get(UNIFIED) or next(iter(self.paths.values()))

    def _pids_anywhere(self) -> set[int]:
        """A process that was moved out of one hierarchy still belongs to the job in the others."""
        found: set[int] = set()
        for path in dict.fromkeys(self.paths.values()):
            found.update(list_pids(path))
        return found

    # use again, removal

    def reclaim(self) -> bool:
        """Reclaims page cache that an earlier job left charged to the group."""
        if "memory" in self.paths:
            return not _write_file(f"{self.paths['memory']}/memory.force_empty", 0)
        # The kernel answers EAGAIN if there was less to reclaim, which is fine.
        _write_file(f"{self.paths[UNIFIED]}/memory.reclaim", _RECLAIM_BYTES)
        return os.path.exists(f"{self.paths[UNIFIED]}/memory.reclaim")

    def remove(self) -> list[str]:
        """Removes the job's groups, those it left below them, and the shared parent if it is empty.
        Returns the directories that still contain processes."""
        stuck = []
        for path in dict.fromkeys(self.paths.values()):
            if not _remove_tree(path, time.monotonic() + _REMOVE_TIMEOUT_S):
                stuck.append(path)
                continue
            with contextlib.suppress(OSError):  # it has other jobs, or another process was faster
                os.rmdir(os.path.dirname(path))
        return stuck


def _make_group(base: str, name: str, known: Collection[str] = ()) -> str:
    """`known`: directories of this job; co-mounted v1 controllers share one."""
    parent = shared_parent(base)
    if f"{parent}/{name}" in known:
        return f"{parent}/{name}"
    for _ in range(_CREATE_TRIES):
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent, 0o755)
        try:
            os.mkdir(f"{parent}/{name}", 0o755)
        except FileNotFoundError:
            continue  # another process removed the empty parent meanwhile
        return f"{parent}/{name}"
    raise OSError(f"another process keeps removing {parent}")


def _remove_tree(path: str, deadline: float) -> bool:
    for below in subgroups(path):
        if not _remove_tree(below, deadline):
            return False
    pause = 0.0005
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            # A process that was just killed is still counted for a moment.
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        else:
            return True


def _write_file(path: str, value: int | str) -> str:
    """Returns why the file could not be written; empty: it was."""
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(str(value).encode())
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


# Groups of other stores stay this long: the successor of a killed process reads the usage of its jobs there.
_FORGOTTEN_S = 7 * 86_400


def shared_parents(layout: CgroupLayout, parent: str | None = None) -> list[str]:
    """Returns where job groups of this user may be, from this process's own groups upwards. `parent`: a
    path below each mount where they are made instead (limits.cgroup_parent)."""
    found = {}
    for hierarchy in layout.hierarchies.values():
        mount = hierarchy.mount_point.rstrip("/")
        directory = (hierarchy.directory or mount).rstrip("/")
        while directory == mount or directory.startswith(f"{mount}/"):
            found[shared_parent(directory)] = True
            directory = os.path.dirname(directory)
        if parent is not None:
            found[shared_parent(f"{mount}/{parent.strip('/')}".rstrip("/"))] = True
    return [parent for parent in found if os.path.isdir(parent)]


def sweep_groups(spool_dir: str, store: Store, now_us: int, cgroup_parent: str | None = None) -> None:
    """Removes forgotten groups. Asks the store only about groups of dead processes and about old ones."""
    layout = read_layout()
    forgotten = ForgottenGroups(spool_dir, _Needed(spool_dir, store), now_us)
    forgotten.remove(shared_parents(layout, cgroup_parent), layout)


def sweep_own_groups(spool_dir: str, store: Store, parents: Iterable[str]) -> None:
    """Removes groups made by processes of this store, by their names, in `parents` only. Costs a listing of
    each if there are none."""
    ForgottenGroups(spool_dir, _Needed(spool_dir, store)).remove(parents)


SLOT_SUFFIX = ".slot"  # of the file that names the owner of a slot


def has_mark(spool_dir: str, uuid: str) -> bool:
    return os.path.exists(os.path.join(spool_dir, f"slot-{uuid}{SLOT_SUFFIX}"))


class _Needed:
    """Returns whether this store needs the groups of that name and these paths. Queries it once."""

    def __init__(self, spool_dir: str, store: Store) -> None:
        self._spool_dir = spool_dir
        self._store = store
        self._running: list[Record] | None = None

    def __call__(self, name: GroupName, paths: Iterable[str]) -> bool:
        if name.is_slot and has_mark(self._spool_dir, name.uuid):
            return True  # sweep_slots removes it
        if self._running is None:
            self._running = self._store.running()
        groups = {path for one in self._running if one.attempt for path in one.attempt.groups.values()}
        return not groups.isdisjoint(paths) or any(one.job.uuid == name.uuid for one in self._running)


class ForgottenGroups:
    """Removes groups that are empty in all hierarchies. Groups made by a process of this store are
    removed once it is dead and no unfinished job needs them; so are groups of a slot whose spool
    directory is gone. Others stay for a week: another store may still have to finalize their
    jobs."""

    def __init__(
        self,
        spool_dir: str,
        is_wanted: Callable[[GroupName, Iterable[str]], bool],
        now_us: int | None = None,
    ) -> None:
        """`is_wanted`: returns whether this store needs groups of that name and these paths. `now_us` None:
        others stay, however old they are."""
        self._spool_dir = spool_dir
        self._is_wanted = is_wanted
        self._now_us = now_us
        self._own_mark = spool_mark(spool_dir)
        self._own_root = f"-{self._own_mark.partition('_')[0]}_"  # in names of groups made by its processes
        self._spools: set[str] | None = None  # marks of the neighbouring directories

    def remove(self, parents: Iterable[str], layout: CgroupLayout | None = None) -> None:
        """Judges groups by their names first: a machine may have thousands of other stores."""
        found = [
            (parsed, paths)
            for name, paths in _by_name(parents).items()
            if (self._now_us is not None or self._own_root in name)
            and (parsed := parse_group_name(name)) is not None
            and self._may_go(parsed, paths.values())
        ]
        if not found:
            return
        layout = layout or read_layout()
        mounts = {hierarchy.mount_point for hierarchy in layout.hierarchies.values()}
        for parsed, paths in found:
            if self._is_wanted(parsed, paths.values()):
                continue
            if all(is_job_group(path, mounts) for path in paths.values()):
                groups = JobGroups(layout.kind, paths)
                if groups.is_empty():
                    groups.remove()

    def _may_go(self, name: GroupName, paths: Iterable[str]) -> bool:
        is_made_here = name.spool == self._own_mark or (name.is_slot and self._is_spool_missing(name))
        if is_made_here and is_owner_dead(name):
            return True
        # A slot of an earlier version stays: its mark names its owner.
        now_us = self._now_us
        return (
            now_us is not None
            and not name.is_slot
            and all(age_s(path, now_us) > _FORGOTTEN_S for path in paths)
        )

    def _is_spool_missing(self, name: GroupName) -> bool:
        """Returns whether another store's spool directory is gone; known only for directories next to
        this one."""
        if name.spool.partition("_")[0] != self._own_mark.partition("_")[0]:
            return False
        if self._spools is None:
            root = os.path.dirname(self._spool_dir)
            try:
                names = os.listdir(root)
            except FileNotFoundError:
                names = []
            except OSError:
                return False
            self._spools = {spool_mark(os.path.join(root, one)) for one in names}
        return name.spool not in self._spools


def is_owner_dead(name: GroupName) -> bool:
    """Returns False also if unknown: the name has no owner, or it was in another pid namespace."""
    if name.pid is None or name.pid_namespace != pid_namespace():
        return False
    return not is_running(name.pid, name.start_ticks)


def _by_name(parents: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns paths by their parents, by name."""
    found: dict[str, dict[str, str]] = {}
    for parent in parents:
        with contextlib.suppress(OSError):  # it was just removed
            for name in os.listdir(parent):
                found.setdefault(name, {})[parent] = f"{parent}/{name}"
    return found
