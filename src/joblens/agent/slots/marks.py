"""Slot marks: one file per slot with its owner and its groups. Between two jobs no record has them, and
groups of a killed owner would stay."""

import contextlib
import os
import signal
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from joblens.agent.cgroups.groups import SLOT_SUFFIX, JobGroups
from joblens.agent.launcher.slot_ledger import ledger_owner, ledgers
from joblens.agent.runtime.ownership import is_gone
from joblens.files.private import create_with, names_with_suffix
from joblens.files.processes import is_running
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Owner, Record
from joblens.probes.host.machine_load import HostFacts
from joblens.probes.proc.process_tree import ProcessTreeProbe


class SlotMark(Struct, frozen=True):
    owner: Owner
    files: str  # path prefix of the output files of its jobs
    kind: str = ""
    paths: dict[str, str] = {}  # of its groups, if any
    launcher_pid: int | None = None  # None: not started yet
    launcher_start_ticks: int | None = None
    counter_files: tuple[str, ...] = ()  # of its groups, in the order of the launcher's notes


def write_mark(spool_dir: str, name: str, mark: SlotMark) -> None:
    """Writes a mark atomically, even if this process is killed. A slot works without one if it cannot be
    written."""
    path, text = os.path.join(spool_dir, name + SLOT_SUFFIX), msgspec.json.encode(mark)
    with contextlib.suppress(OSError):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            file = create_with(path, text)
        else:
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))
        os.close(file)


def remove_mark(spool_dir: str, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(spool_dir, name + SLOT_SUFFIX))


def has_slots(spool_dir: str) -> bool:
    return bool(slot_marks(spool_dir))


def sweep_slots(spool_dir: str, host: HostFacts, unfinished: Iterable[Record]) -> None:
    """Removes the groups of slots whose owner is gone, once nothing runs in them. Groups of `unfinished` jobs
    stay: recovery reads their usage there. So do slots of an owner whose ledger may have jobs that are
    missing in the store. Jobs of a queue are delivered again."""
    in_ledgers = [ledger_owner(path) for path in ledgers(spool_dir)]
    wanted = {
        path
        for one in unfinished
        if one.attempt is not None and not one.job.queue
        for path in one.attempt.groups.values()
    }
    for name, mark in slot_marks(spool_dir).items():
        is_wanted = mark.owner in in_ledgers or not wanted.isdisjoint(mark.paths.values())
        if is_gone(mark.owner, host) and not is_wanted and _is_cleared(mark):
            remove_mark(spool_dir, name)


def end_slot(mark: SlotMark) -> None:
    """Kills the job of a slot and its launcher."""
    standing = {key: path for key, path in mark.paths.items() if os.path.isdir(path)}
    if standing:
        with contextlib.suppress(JoblensError):
            JobGroups.open(mark.kind, standing).kill()
        return
    assert mark.launcher_pid is not None
    tree = ProcessTreeProbe(mark.launcher_pid, include_root=False)
    try:
        for pid in [mark.launcher_pid, *tree.descendants()]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    finally:
        tree.close()


def read_mark(spool_dir: str, name: str) -> SlotMark | None:
    try:
        with open(os.path.join(spool_dir, name + SLOT_SUFFIX), "rb") as file:
            return msgspec.json.decode(file.read(), type=SlotMark)
    except (OSError, msgspec.MsgspecError):
        return None


def slot_marks(spool_dir: str) -> dict[str, SlotMark]:
    """Returns marks by the names of their slots."""
    found = {name: read_mark(spool_dir, name) for name in names_with_suffix(spool_dir, SLOT_SUFFIX)}
    return {name: mark for name, mark in found.items() if mark is not None}


def _is_cleared(mark: SlotMark) -> bool:
    if is_running(mark.launcher_pid, mark.launcher_start_ticks):
        return False  # it ends by itself when its job has ended
    standing = {key: path for key, path in mark.paths.items() if os.path.isdir(path)}
    if standing:
        try:
            groups = JobGroups.open(mark.kind, standing)
        except JoblensError:
            return True  # joblens did not make them
        if not groups.is_empty() or groups.remove():
            return False
    for suffix in ("out", "err"):
        with contextlib.suppress(OSError):
            os.unlink(f"{mark.files}.{suffix}")
    return True
