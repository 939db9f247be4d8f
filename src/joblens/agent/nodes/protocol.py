"""Protocol of a multi-node job: messages between its head and the node agents, and tasks that are announced
at a socket and moved into its groups."""

import contextlib
import os
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Callable

import msgspec
from msgspec import Struct

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import slurm_step
from joblens.agent.nodes import task_prolog
from joblens.agent.nodes.task_prolog import door_name
from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import Accounting
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.proc.several_trees import SeveralTrees

END, KILL = "end", "kill"  # commands to agents: take the last reading and exit; kill the job's processes
_MARK = b"joblens-node"
_PIECE = 640
_MOST_PIECES = 4096


class NodeOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Order for all agents alike; on a command line, so without secrets."""

    uuid: str
    memory_bytes: int | None = None  # limits on each node; None: not limited
    cpus: float | None = None
    pids: int | None = None
    interval_s: float = 1.0
    accounting: Accounting = Accounting.AUTO
    probes: tuple[str, ...] | None = None
    cgroup_parent: str = ""
    prolog: str = ""  # file that tasks on each node must find


class NodeReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    part: NodePart
    has_prolog: bool = False
    is_final: bool = False
    over: str = ""  # limit that was exceeded on the node: memory-limit, pids-limit


def report_lines(report: NodeReport) -> list[bytes]:
    text = msgspec.json.encode(report)
    pieces = [text[offset : offset + _PIECE] for offset in range(0, len(text), _PIECE)]
    node = report.part.node.encode()
    return [
        b"%s %s %d/%d %s\n" % (_MARK, node, index, len(pieces), piece)
        for index, piece in enumerate(pieces, start=1)
    ]


class ReportReader:
    """Assembles reports from lines. Other lines are stored as messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._begun: dict[bytes, list[bytes]] = {}

    def feed(self, line: bytes) -> NodeReport | None:
        words = line.rstrip(b"\n").split(b" ", 3)
        if len(words) < 4 or words[0] != _MARK:
            self._keep(line)
            return None
        index, _, count = words[2].partition(b"/")
        if not (index.isdigit() and count.isdigit()) or int(count) > _MOST_PIECES:
            return None
        pieces = self._begun.setdefault(words[1], [])
        if int(index) == 1:
            pieces.clear()
        if int(index) != len(pieces) + 1:
            return None  # the beginning of this report is lost
        pieces.append(words[3])
        if int(index) < int(count):
            return None
        text = b"".join(self._begun.pop(words[1]))
        try:
            return msgspec.json.decode(text, type=NodeReport)
        except msgspec.DecodeError:
            return None

    def _keep(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self.messages = [*self.messages[-9:], text[:500]]


_TIMEOUT_S = 10.0
# A node's agent may start later than the first task there; on this node the door is open before the job.
PROLOG_WAIT_S = 5.0


class TaskDoor:
    """Socket at which tasks are announced. `take(pid)` returns how the task is measured from now on; its
    exceptions go only to `errors`. It is called on a thread of the door."""

    def __init__(self, uuid: str, node: str, take: Callable[[int], str]) -> None:
        """Raises OSError if the name is in use."""
        self.ranks: set[int] = set()
        self.taken = 0
        self.errors: list[str] = []
        self._take = take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.bind(door_name(os.geteuid(), uuid, node))
            self._socket.listen(1024)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="joblens-tasks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_TIMEOUT_S)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return  # closed
            try:
                caller.settimeout(_TIMEOUT_S)
                self._answer(caller)
            except OSError:
                pass  # the task has ended
            finally:
                caller.close()

    def _answer(self, caller: socket.socket) -> None:
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        words = caller.recv(4096).decode(errors="replace").split(" ")
        if uid not in (os.geteuid(), 0) or not words[0].isdecimal():
            return
        pid = int(words[0])
        if not _belongs_to(pid, uid):
            return
        try:
            answer = self._take(pid)
            self.taken += 1
            if len(words) > 1 and words[1].isdecimal():
                self.ranks.add(int(words[1]))
        except Exception as error:  # noqa: BLE001 - the task runs all the same
            answer = str(error) or type(error).__name__
            self.errors.append(answer)
        caller.send(answer.encode())


def _belongs_to(pid: int, uid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == uid
    except OSError:
        return False


def write_prolog(path: str, uuid: str, earlier: str = "") -> None:
    """Writes a program for SLURM_TASK_PROLOG. Slurm fails tasks whose prolog fails, so this one cannot.
    `earlier`: the user's own prolog, whose output and exit status count. Raises OSError also if the file
    cannot be executed."""
    words = [sys.executable, "-I", "-S", os.path.abspath(task_prolog.__file__), uuid, str(PROLOG_WAIT_S)]
    lines = ["#!/bin/sh", f"{shlex.join(words)} </dev/null >/dev/null 2>&1"]
    lines.append(f"exec {shlex.quote(earlier)}" if earlier else "exit 0")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines) + "\n")
    if not os.access(path, os.X_OK):
        raise PermissionError(f"{path} lies where nothing may be executed")


JOINED, FOLLOWED = "joined", "followed"


def join_or_follow(pid: int, groups: JobGroups | None, trees: SeveralTrees) -> str:
    """Moves a task into the job's own groups, which count it exactly, or follows it. A task that Slurm
    holds in a group stays there: Slurm ends and limits its tasks by that. Raises ProbeError if the task
    has ended."""
    if groups is not None and not _is_held_by_slurm(pid) and _join(pid, groups):
        return JOINED
    trees.add(pid)
    return FOLLOWED


def _is_held_by_slurm(pid: int) -> bool:
    hierarchies = read_layout(pid=pid).hierarchies.values()
    return any(slurm_step(hierarchy.own_path) for hierarchy in hierarchies)


def _join(pid: int, groups: JobGroups) -> bool:
    """Returns whether any of the groups has it now: the first, which counts CPU time, is the one that may
    refuse it."""
    joined = 0
    for path in groups.attach_files():
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(str(pid).encode())
        except OSError:
            break
        joined += 1
    return joined > 0
