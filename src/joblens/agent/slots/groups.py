"""Control groups of a slot: made, counted, and the resident launcher process inside them."""

import _socket
import contextlib
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher import launcher
from joblens.agent.measuring.accounting import PROCESS_TREE
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.marks import SlotMark, remove_mark, write_mark
from joblens.files.private import make_private_folder
from joblens.files.processes import process_start_ticks
from joblens.model.errors import AccountingUnavailable, LauncherLost, LaunchError
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.network.cgroup_network import FIELDS, NO_GROUP, CgroupNetworkProbe, v2_group
from joblens.probes.proc.process_tree import ProcessTreeProbe

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

    def peak_index(self) -> int:
        return self._groups.peak_index()

    def reset_peak(self) -> None:
        """Where it can be: from here on it tells of what comes."""
        if self.peak >= 0:
            with contextlib.suppress(OSError):  # the group is gone; the next reading tells
                os.pwrite(self.peak, b"0", 0)

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """Parses what the launcher has read."""
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
        index = self.peak_index()
        if index < 0:
            return -1
        try:
            descriptor = os.open(self.files()[index], os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            os.pwrite(descriptor, b"0", 0)
        except OSError:
            os.close(descriptor)
            return -1
        self._groups.read_through(index, descriptor)
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
    why = v2_group(paths)[1] or "not requested: network is not among the chosen probes"
    return dict.fromkeys(FIELDS, why)


_MAX_MESSAGE = 1 << 17
_PIECE = 1 << 16  # of a command that is larger than a socket takes at once


class SlotOrder(NamedTuple):
    """A job as its launcher gets it."""

    uuid: str
    argv: list[bytes]
    env: dict[bytes, bytes]  # changes to the launcher's
    cwd: str
    folder: str
    streams: str
    ledger_offset: int  # -1: it is in no ledger


class SlotProcess:
    def __init__(
        self,
        files: str,
        ledger: str,
        logs_dir: str,
        attach: Sequence[str] | None,
        rlimits: Sequence[tuple[int, int, int]] = (),
        env: Mapping[str, str] | None = None,
        descriptors: tuple[int, int] = (-1, -1),
        *,
        kill_with_owner: bool = False,
    ) -> None:
        """`files` is the path prefix of what jobs print to, in `logs_dir` so that it can be moved there.
        `ledger`: path of the file in which it notes what it runs; empty: there is none.
        `attach`: files to join its groups by. None: `enter` brings these and the descriptors later, and only
        then it begins.
        `rlimits`: what jobs get where the owner changed its own. `env`: what they have beside its own.
        `descriptors` it is given, -1 where there is none: memory in which the kernel counts the packets of
        its group, and the memory peak, which it reads and resets. `kill_with_owner`: its job ends with this
        process."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.socket = ours.detach()
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._files = files
        self._logs_dir = logs_dir
        # One for all messages: a new one of this size would be allocated and freed each time.
        self._message = memoryview(bytearray(_MAX_MESSAGE))
        their_end = theirs.detach()
        self._permits, self._permit_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ends = (their_end, self._permits)
        limits = ",".join(":".join(map(str, limit)) for limit in rlimits)
        argv = [*launcher.start_argv("slot_launcher"), *map(str, (*ends, *descriptors)), files, ledger]
        argv += [logs_dir, limits, "with owner" if kill_with_owner else ""]
        argv += [""] if attach is None else attach
        # dup2 onto itself is how posix_spawn says "do not close this one".
        actions = [(os.POSIX_SPAWN_DUP2, end, end) for end in (*ends, *descriptors) if end >= 0]
        try:
            make_private_folder(logs_dir)
            self.pid = os.posix_spawn(
                sys.executable, argv, {**os.environ, **(env or {})}, file_actions=actions
            )
        except OSError as error:
            self._close_ends()
            raise LaunchError(f"a launcher could not be started: {error}") from error
        finally:
            os.close(their_end)
        self.start_ticks = process_start_ticks(self.pid)
        if attach is not None:
            self._wait_until_up()

    def enter(self, attach: Sequence[str], descriptors: tuple[int, int]) -> None:
        """Has it join groups that were made after its start."""
        message = marshal.dumps(("groups", list(attach), *(number >= 0 for number in descriptors)))
        sent = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors if number >= 0)
        socket = _socket.socket(fileno=self.socket)
        with contextlib.suppress(OSError):  # gone; `receive` will say so
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)] if sent else []
            socket.sendmsg([message], rights)
        socket.detach()
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        """Raises AccountingUnavailable when it cannot join its groups, LaunchError for anything else."""
        try:
            answer = self.receive()
        except LauncherLost:
            self.close()
            raise LaunchError("a launcher ended before it was ready for a job") from None
        if answer[0] == "hello":
            return
        _, number, stage, path = answer
        self.close()
        if stage == "join":
            raise AccountingUnavailable(
                f"a launcher cannot join its control group: {os.strerror(number)} ({path})"
            )
        reason = f"{os.strerror(number)} ({path})" if path else os.strerror(number)
        raise LaunchError(f"a launcher cannot use {self._logs_dir} for the output of jobs: {reason}")

    def give_jobs(self, orders: Sequence[SlotOrder], *, has_one: bool) -> None:
        """`has_one`: another job still runs. All that are not to run at once can be taken back until the
        launcher begins them."""
        ahead = len(orders) if has_one else len(orders) - 1
        if ahead:
            os.write(self._permit_end, b"p" * ahead)
        jobs = [(*order, has_one or index > 0) for index, order in enumerate(orders)]
        data = marshal.dumps(jobs)
        # A launcher that is gone is noticed when its answer is received.
        with contextlib.suppress(BrokenPipeError):
            if len(data) <= _PIECE:
                os.write(self.socket, data)
                return
            for start in range(0, len(data), _PIECE):
                os.write(self.socket, marshal.dumps(("part", data[start : start + _PIECE])))
            os.write(self.socket, marshal.dumps(("start",)))

    def take_permit_back(self) -> bool:
        """True: the job that was sent ahead will not be run by this launcher."""
        try:
            return bool(os.read(self._permits, 1))
        except BlockingIOError:
            return False

    def has_answered(self) -> bool:
        """Something it said, or its end, has yet to be received."""
        return bool(self._poll.poll(0))

    def open_counters(self, paths: list[str], peak_index: int) -> list[bytes]:
        """Has these files read after every job, and the peak among them (-1: there is none) reset.
        -> what they say now"""
        self.say("counters", paths, peak_index)
        contents: list[bytes] = self.receive()[1]
        return contents

    def _close_ends(self) -> None:
        for end in (self.socket, self._permits, self._permit_end):
            os.close(end)
        self.socket = -1

    def say(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # gone; `receive` will say so
            os.write(self.socket, marshal.dumps(message))

    def receive(self) -> tuple[Any, ...]:
        """The next message; raises LauncherLost when the launcher is gone."""
        try:
            size = os.readv(self.socket, (self._message,))
        except OSError:
            size = 0
        if not size:
            raise LauncherLost("a slot's launcher was killed")
        message = marshal.loads(self._message[:size])  # noqa: S302 - from our own launcher, over our own socket
        assert isinstance(message, tuple)
        return message

    def close(self) -> None:
        """Call it once nothing runs in the groups. A second call does nothing."""
        if self.socket < 0:
            return
        self.say()
        self._close_ends()
        with contextlib.suppress(ChildProcessError):  # the host program takes its children itself
            os.waitpid(self.pid, 0)
        for suffix in ("out", "err"):
            with contextlib.suppress(OSError):  # it has done so itself unless it was killed
                os.unlink(f"{self._files}.{suffix}")


_KILL_TRIES = 20  # a fork may slip between listing and killing


class SlotHome:
    def __init__(
        self,
        context: AgentContext,
        accounting: Accounting,
        logs_dir: str,
        env: Mapping[str, str],
        ledger: str,
    ) -> None:
        """`ledger`: path of the file that has its jobs. Raises LaunchError or AccountingUnavailable; nothing
        is left behind then."""
        try:
            self._set_up(context, accounting, logs_dir, env, ledger)
        except AccountingUnavailable as error:
            if accounting is not Accounting.AUTO:
                raise
            context.accountant.give_up_groups(str(error))
            self._set_up(context, Accounting.PROCESS_TREE, logs_dir, env, ledger)

    def _set_up(
        self,
        context: AgentContext,
        accounting: Accounting,
        logs_dir: str,
        env: Mapping[str, str],
        ledger: str,
    ) -> None:
        self._spool_dir = context.spool_dir
        # Never used again: recovery after this process must not meet the groups of another.
        self._name = f"slot-{new_uuid()}"
        files = os.path.join(logs_dir, f".{self._name}")
        start = partial(
            SlotProcess,
            files,
            ledger,
            logs_dir,
            rlimits=context.job_rlimits,
            env=env,
            kill_with_owner=context.kill_with_owner,
        )
        self.groups: JobGroups | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_groups)
            is_first = context.accountant.needs_scope(accounting)
            if is_first:
                self.launcher = start(None)
                undo.callback(self.launcher.close)
            self.groups = context.accountant.groups_for_process(
                self._name, accounting, self.launcher.pid if is_first else None
            )
            self.kind = self.groups.kind if self.groups else PROCESS_TREE
            self.paths = self.groups.paths if self.groups else {}
            mark = SlotMark(context.owner, files, self.groups.kind if self.groups else "", self.paths)
            write_mark(self._spool_dir, self._name, mark)
            attach = self.groups.attach_files() if self.groups else ()
            network = open_network(self.paths) if context.instruments.is_chosen("network") else None
            if network is not None:
                undo.callback(network.close)
            self.probe = SlotCounters(self.paths, self.kind, network) if self.groups else None
            if self.probe is not None:
                undo.callback(self.probe.close)
            self.can_reset_peak = self.probe is not None and self.probe.peak >= 0
            descriptors = (
                network.descriptor if network is not None else -1,
                self.probe.peak if self.probe is not None else -1,
            )
            if is_first:
                self.launcher.enter(attach, descriptors)
            else:
                self.launcher = start(attach, descriptors=descriptors)
                undo.callback(self.launcher.close)
            if network is not None:
                network.close_descriptor()
            launcher = (self.launcher.pid, self.launcher.start_ticks)
            counter_files = tuple(self.probe.files()) if self.probe is not None else ()
            write_mark(
                self._spool_dir,
                self._name,
                SlotMark(mark.owner, mark.files, mark.kind, mark.paths, *launcher, counter_files),
            )
            self.first_reading: dict[str, Any] = {}
            if self.probe is not None:
                contents = self.launcher.open_counters(self.probe.files(), self.probe.peak_index())
                self.probe.reset_peak()  # what it took to start the launcher is no job's
                self.first_reading = self.parse(contents)
            undo.pop_all()

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """Parses what the launcher read while no job was inside."""
        return {**self.probe.parse(contents), "processes": 1} if self.probe is not None else {}

    def job_pids(self) -> list[int]:
        if self.groups is not None:
            return [pid for pid in self.groups.pids() if pid != self.launcher.pid]
        tree = ProcessTreeProbe(self.launcher.pid, include_root=False)
        try:
            return tree.descendants()
        finally:
            tree.close()

    def signal_job(self, number: int) -> bool:
        """Signals all but the launcher. False: there is no process yet, or none left."""
        if self.groups is not None:
            return self.groups.signal(number, spare=(self.launcher.pid,)) > 0
        pids = self.job_pids()
        _send(pids, number)
        return bool(pids)

    def kill_job(self) -> None:
        """All but the launcher. The groups may be unable to fork afterwards."""
        if self.groups is not None:
            self.groups.kill(spare=(self.launcher.pid,))
            return
        for _ in range(_KILL_TRIES):
            pids = self.job_pids()
            if not pids:
                return
            _send(pids, signal.SIGKILL)
            time.sleep(0.002)

    def close(self) -> None:
        """Ends what runs in it, too."""
        self.launcher.close()
        if self.probe is not None:
            self.probe.close()
        self._remove_groups()

    def _remove_groups(self) -> None:
        if self.groups is not None:
            self.groups.kill()
            self.groups.remove()
        remove_mark(self._spool_dir, self._name)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or became another user's
            os.kill(pid, number)
