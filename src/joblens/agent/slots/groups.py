"""Slot home: control groups of a slot, their counters, and the resident launcher process inside them."""

import _socket
import contextlib
import marshal
import os
import select
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher import launcher
from joblens.agent.measuring.accounting import PROCESS_TREE, kill_each, signal_each
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

NO_PACKETS = dict.fromkeys(FIELDS, NO_GROUP)  # of a slot without groups


class SlotCounters:
    """Counters of a slot's groups, with packet counts, which are the last of the contents that the launcher
    reads."""

    name = "slot"

    def __init__(self, paths: Mapping[str, str], kind: str, network: CgroupNetworkProbe | None) -> None:
        """Resets the peak, which on cgroup v1 changes it for every reader: only the owner of the slot may do
        so. `network`: None if packets are not counted. It is closed with this object."""
        self._groups = CgroupProbe(paths, kind)
        self._network = network
        # passed to the launcher, too; -1: it cannot be reset
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
        """Restarts the peak, if possible."""
        if self.peak >= 0:
            with contextlib.suppress(OSError):  # the group is gone; the next reading fails
                os.pwrite(self.peak, b"0", 0)

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """Parses contents that the launcher has read."""
        if not self._is_counted or self._network is None:
            return self._groups.parse(contents)
        fields = self._groups.parse(contents[:-1])
        if contents[-1] != self._known[0]:  # most jobs have no network
            self._known = (contents[-1], self._network.parse(contents[-1]))
        fields.update(self._known[1])
        return fields

    def _open_peak(self) -> int:
        """Returns a descriptor if the kernel lets this user reset the peak, which only an attempt shows;
        otherwise -1. cgroup v2 keeps a reset peak for each open file (Linux 6.12): another open of the same
        path reads another one."""
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
    """Opens the packet counters of these groups, before the launcher is started, which inherits the
    descriptor."""
    group, _ = v2_group(paths)
    return CgroupNetworkProbe(group) if group else None


def _why_not_counted(paths: Mapping[str, str], network: CgroupNetworkProbe | None) -> Mapping[str, str]:
    if network is not None:
        return network.unknown
    why = v2_group(paths)[1] or "not requested: network is not among the chosen probes"
    return dict.fromkeys(FIELDS, why)


_MAX_MESSAGE = 1 << 17
_PIECE = 1 << 16  # of a command that is larger than one message of the socket


class SlotOrder(NamedTuple):
    """Job as sent to its launcher."""

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
        """`files`: path prefix of the output files of jobs, in `logs_dir` so that they can be moved there.
        `ledger`: path of the file for the launcher's notes; empty: there is none. `attach`: files to join its
        groups by; None: the launcher waits for `enter`, which passes these and the descriptors. `rlimits`:
        limits for jobs if the owner changed its own. `env`: added to the environment of jobs. `descriptors`:
        memory in which the kernel counts the packets of its group, and the memory peak, which it reads and
        resets; -1: none. `kill_with_owner`: its job is killed with this process."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.socket = ours.detach()
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._files = files
        self._logs_dir = logs_dir
        # One buffer for all messages: each of this size would be allocated and freed.
        self._message = memoryview(bytearray(_MAX_MESSAGE))
        their_end = theirs.detach()
        self._permits, self._permit_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ends = (their_end, self._permits)
        limits = ",".join(":".join(map(str, limit)) for limit in rlimits)
        argv = [*launcher.start_argv("slot_launcher"), *map(str, (*ends, *descriptors)), files, ledger]
        argv += [logs_dir, limits, "with owner" if kill_with_owner else ""]
        argv += [""] if attach is None else attach
        # dup2 onto itself keeps a descriptor open in posix_spawn.
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
        """Makes the launcher join groups that were made after its start."""
        message = marshal.dumps(("groups", list(attach), *(number >= 0 for number in descriptors)))
        sent = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors if number >= 0)
        socket = _socket.socket(fileno=self.socket)
        with contextlib.suppress(OSError):  # it is gone; `receive` reports that
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)] if sent else []
            socket.sendmsg([message], rights)
        socket.detach()
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        """Waits until the launcher runs. Raises AccountingUnavailable if it cannot join its groups,
        LaunchError for anything else."""
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

    def send_jobs(self, orders: Sequence[SlotOrder], *, has_one: bool) -> None:
        """Sends jobs to the launcher. `has_one`: another job still runs. Jobs that do not start at once can
        be taken back until the launcher begins them."""
        ahead = len(orders) if has_one else len(orders) - 1
        if ahead:
            os.write(self._permit_end, b"p" * ahead)
        jobs = [(*order, has_one or index > 0) for index, order in enumerate(orders)]
        data = marshal.dumps(jobs)
        # A lost launcher is noticed when its answer is received.
        with contextlib.suppress(BrokenPipeError):
            if len(data) <= _PIECE:
                os.write(self.socket, data)
                return
            for start in range(0, len(data), _PIECE):
                os.write(self.socket, marshal.dumps(("part", data[start : start + _PIECE])))
            os.write(self.socket, marshal.dumps(("start",)))

    def revoke_permit(self) -> bool:
        """Returns whether the permit was taken back: the launcher will not run the job that was sent
        ahead."""
        try:
            return bool(os.read(self._permits, 1))
        except BlockingIOError:
            return False

    def has_answered(self) -> bool:
        """Returns whether a message, or the launcher's end, is unread."""
        return bool(self._poll.poll(0))

    def open_counters(self, paths: list[str], peak_index: int) -> list[bytes]:
        """Makes the launcher read these files after every job, and reset the peak among them (-1: there is
        none). Returns their present contents."""
        self.send("counters", paths, peak_index)
        contents: list[bytes] = self.receive()[1]
        return contents

    def _close_ends(self) -> None:
        for end in (self.socket, self._permits, self._permit_end):
            os.close(end)
        self.socket = -1

    def send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone; `receive` reports that
            os.write(self.socket, marshal.dumps(message))

    def receive(self) -> tuple[Any, ...]:
        """Returns the next message. Raises LauncherLost if the launcher is gone."""
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
        """Stops the launcher, once nothing runs in the groups. A second call does nothing."""
        if self.socket < 0:
            return
        self.send()
        self._close_ends()
        with contextlib.suppress(ChildProcessError):  # the host program has reaped it
            os.waitpid(self.pid, 0)
        for suffix in ("out", "err"):
            with contextlib.suppress(OSError):  # the launcher has removed it, unless it was killed
                os.unlink(f"{self._files}.{suffix}")


class SlotHome:
    def __init__(
        self,
        context: AgentContext,
        accounting: Accounting,
        logs_dir: str,
        env: Mapping[str, str],
        ledger: str,
    ) -> None:
        """`ledger`: path of the file with its jobs. Raises LaunchError or AccountingUnavailable, after
        removing everything it made."""
        try:
            self._set_up(context, accounting, logs_dir, env, ledger)
        except AccountingUnavailable as error:
            if accounting is not Accounting.AUTO:
                raise
            context.accountant.disable_groups(str(error))
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
        # Never reused: recovery after this process must not meet the groups of another.
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
            network = open_network(self.paths)
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
                self.probe.reset_peak()  # the start of the launcher does not count for a job
                self.first_reading = self.parse(contents)
            undo.pop_all()

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """Parses contents that the launcher read while no job was inside."""
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
        """Signals all processes except the launcher. Returns False if there is none."""
        if self.groups is not None:
            return self.groups.signal(number, spare=(self.launcher.pid,)) > 0
        pids = self.job_pids()
        signal_each(pids, number)
        return bool(pids)

    def kill_job(self) -> None:
        """Kills all processes except the launcher. The groups may be unable to fork afterwards."""
        if self.groups is not None:
            self.groups.kill(spare=(self.launcher.pid,))
        else:
            kill_each(self.job_pids)

    def close(self) -> None:
        """Closes the slot and kills its processes."""
        self.launcher.close()
        if self.probe is not None:
            self.probe.close()
        self._remove_groups()

    def _remove_groups(self) -> None:
        if self.groups is not None:
            self.groups.kill()
            self.groups.remove()
        remove_mark(self._spool_dir, self._name)
