"""What is different about a job that runs in a container, for whoever looks after it: a session, one that
took it over, or one that settles what is left of it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from joblens.agent.containers.groups import make_container_groups, path_in_every_mount
from joblens.agent.containers.network import NETWORK, ContainerNetworkProbe
from joblens.agent.containers.note import note_path, remove_note
from joblens.agent.containers.order import ContainerOrder, as_variables
from joblens.agent.containers.probe import ContainerFactsProbe, ContainerProbe, NoteReader
from joblens.agent.containers.signals import GIVE_UP
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan
from joblens.agent.measuring.accounting import BY_TIMER, Accountant, Limits
from joblens.agent.measuring.job_processes import JobProcesses
from joblens.agent.measuring.outcome import Ending
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.ports.probe import Probe
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.proc.kernel_files import list_pids

BY_ENGINE = "container engine"
_CLIENT_PATIENCE_S = 20.0  # its own time limits are shorter
_REMOVAL_PATIENCE_S = 5.0
_POLL_S = 0.01
_CLIENT_KILLED = (
    "the process of joblens that looked after its container was killed, so the container was ended"
)


class ContainerProcesses(JobProcesses):
    """Those in the container. The client is told of the end; it takes the container away."""

    def __init__(self, notes: NoteReader) -> None:
        super().__init__()
        self._notes = notes
        self._first_kill_s: float | None = None
        self.tell_client: Callable[[int], None] | None = None

    def pids(self) -> list[int]:
        found = self.groups.pids() if self.groups is not None else []
        return found or self._pids_elsewhere()

    def _pids_elsewhere(self) -> list[int]:
        """Where the engine put the container into groups of its own choice."""
        note = self._notes.latest()
        if note is None or note.is_below_ours or note.has_ended or not note.groups:
            return []
        return list_pids(note.groups.get("unified") or next(iter(note.groups.values())))

    def signal(self, number: int) -> None:
        if self.groups is not None:
            self.groups.signal(number)

    def kill(self) -> None:
        if self.tell_client is not None:
            now_s = time.monotonic()
            self._first_kill_s = self._first_kill_s or now_s
            is_deaf = now_s - self._first_kill_s > _CLIENT_PATIENCE_S
            self.tell_client(signal.SIGKILL if is_deaf else GIVE_UP)
        if self.groups is not None:
            self.groups.kill()


class ContainerHold:
    def __init__(self, job: Job, spool_dir: str) -> None:
        assert job.container is not None
        self._job = job
        self._note_path = note_path(spool_dir, job.uuid)
        self.notes = NoteReader(self._note_path)
        self.processes = ContainerProcesses(self.notes)

    def begin(self, launcher: LauncherProcess, accountant: Accountant, plan: LaunchPlan) -> None:
        self.processes.groups = make_container_groups(self._job.uuid, accountant.parent)
        self.processes.tell_client = launcher.signal_main
        launcher.give(self.plan(plan))

    def plan(self, plan: LaunchPlan) -> LaunchPlan:
        """The client in place of the command, which goes to it as its arguments."""
        job, groups = self._job, self.processes.groups
        assert job.container is not None
        asked = job.requirements
        limits = job.enforce and job.limits_resources
        order = ContainerOrder(
            uuid=job.uuid,
            container=job.container,
            note_path=self._note_path,
            cgroup_parent=path_in_every_mount(groups) if groups is not None else "",
            cpus=asked.cpus if limits else None,
            memory_bytes=asked.memory_bytes if limits else None,
            pids=asked.pids if job.enforce else None,
            gpus=asked.gpus,
            cpu_list=job.cpu_list,
        )
        client = (sys.executable, "-P", "-m", "joblens.agent.containers.client")
        return replace(plan, argv=(*client, *plan.argv), env={**plan.env, **as_variables(order)})

    def limit(self) -> Limits:
        """The engine holds the container to them; where the job has groups above it, these do as well."""
        job, groups = self._job, self.processes.groups
        asked = job.requirements
        if not job.enforce:
            return Limits()
        wanted = {"cpus": asked.cpus, "memory": asked.memory_bytes} if job.limits_resources else {}
        wanted["pids"] = asked.pids
        by = {name: BY_ENGINE for name, value in wanted.items() if value is not None}
        if groups is not None:
            by |= groups.set_limits(
                wanted.get("cpus"), asked.memory_bytes if "memory" in by else None, asked.pids
            )
        if asked.timeout_s is not None:
            by["timeout"] = BY_TIMER
        return Limits(enforced_by=by)

    @property
    def accounting(self) -> str:
        """How it is measured where joblens can make no groups: by those the engine makes."""
        return read_layout().kind

    @property
    def has_started(self) -> bool:
        note = self.notes.latest()
        return note is not None and (bool(note.groups) or note.has_ended)

    def probe(self) -> ContainerProbe:
        return ContainerProbe(self.processes.groups, self.notes)

    def bound(self, probes: Sequence[Probe]) -> tuple[Probe, ...]:
        """Those of them that look at the job's groups look where the container really is."""
        return tuple(
            ContainerNetworkProbe(probe, self.notes) if probe.name == NETWORK else probe for probe in probes
        )

    def facts(self) -> ContainerFactsProbe:
        return ContainerFactsProbe(self.notes)

    def last_facts(self) -> Details:
        """For whoever comes too late to take them while it runs."""
        return self.facts().read()

    def judged(self, ending: Ending) -> Ending:
        """What the client found out that its exit status does not tell. Who waited for the container's
        processes is the engine, and it does not say what they used."""
        note = self.notes.latest()
        ending = replace(ending, reaped=None)
        if note is None:
            return ending
        if note.silence:
            return replace(ending, wait_status=None, why_lost=note.silence)
        status = ending.wait_status
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return replace(ending, wait_status=None, why_lost=_CLIENT_KILLED)  # it never ends itself so
        return replace(ending, refusal=note.refusal)

    def end_left(self) -> None:
        """Whatever is still there of the container when its client is gone. An engine that does not answer
        is not waited for: the note stays, and the next joblens tries again (`sweep_notes`)."""
        note = self.notes.latest()
        if note is None or note.is_removed or not note.engine:
            return
        pid = start_removal(self._note_path, self._job.uuid)
        if pid is not None and not note.silence:
            _wait_for(pid, _REMOVAL_PATIENCE_S)

    def forget(self) -> None:
        """When the outcome is recorded."""
        note = self.notes.latest()
        if note is None or note.is_removed or not note.engine:
            remove_note(self._note_path)


def start_removal(path: str, uuid: str) -> int | None:
    """A process that takes the container away, with time limits of its own."""
    argv = [sys.executable, "-P", "-m", "joblens.agent.containers.removal", path, uuid]
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        return os.posix_spawn(sys.executable, argv, os.environ, file_actions=files, setsid=True)
    except OSError:
        return None


def _wait_for(pid: int, patience_s: float) -> None:
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return  # the host program takes its children itself
        time.sleep(_POLL_S)
