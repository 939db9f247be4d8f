"""Where the jobs of a slot run: its control groups, the launcher inside them, and the file that says whose
they are. A slot on a machine without control groups has only the launcher."""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.measuring.accounting import PROCESS_TREE
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.counters import SlotCounters, open_network
from joblens.agent.slots.marks import SlotMark, remove_mark, write_mark
from joblens.agent.slots.process import SlotProcess
from joblens.model.errors import AccountingUnavailable
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid
from joblens.probes.proc.process_tree import ProcessTreeProbe

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
        # Never used again: whoever comes to clear up after this process must not meet another's groups.
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
                contents = self.launcher.open_counters(self.probe.files(), self.probe.peak_place())
                self.probe.reset_peak()  # what it took to start the launcher is no job's
                self.first_reading = self.parse(contents)
            undo.pop_all()

    def parse(self, contents: list[bytes]) -> dict[str, Any]:
        """What the launcher read with nobody else inside."""
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
        """For all but the launcher. False: there is nobody yet, or nobody any more."""
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
