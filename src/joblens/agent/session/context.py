"""Agent context: store, recorder, sampler and accounting that all sessions of one owner share."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.instruments.table import Instruments
from joblens.agent.launcher.launch import LauncherProcess
from joblens.agent.measuring.accounting import Accountant
from joblens.agent.provenance.collector import ProvenanceCollector
from joblens.agent.runtime.loop import Loop, Sampler
from joblens.agent.runtime.recorder import Recorder
from joblens.model.jobs.job import Job, Owner, Record
from joblens.model.redaction.secrets import NO_SECRETS, SecretValues
from joblens.probes.host.machine_load import HostFacts

if TYPE_CHECKING:
    from joblens.agent.containers.job import ContainerHandle
    from joblens.agent.nodes.job import MultiNodeJob
    from joblens.agent.nodes.jobs import MultiNodeJobs
    from joblens.ports.clock import Clock


def container_handle(job: Job, spool_dir: str, clock: "Clock") -> "ContainerHandle | None":
    """Returns the container of a job, or None for a plain process."""
    if job.container is None:
        return None
    from joblens.agent.containers.job import ContainerHandle

    return ContainerHandle(job, spool_dir, clock)


ALL_JOBS = ""


class AgentContext(Struct, frozen=True):
    """Parts that all sessions of one owner share."""

    recorder: Recorder
    sampler: Sampler
    accountant: Accountant
    clock: "Clock"
    loop: Loop
    owner: Owner
    host: HostFacts
    spool_dir: str  # folder of this store for outcomes of launchers, ledgers, slot marks and pending ends
    job_rlimits: tuple[tuple[int, int, int], ...] = ()  # limits for jobs if the owner changed its own
    instruments: Instruments = field(default_factory=Instruments)
    kill_with_owner: bool = False  # jobs are killed with their owner
    nodes: "MultiNodeJobs | None" = None  # None: this process has no nodes of a cluster
    complete: Callable[[Record], Record] | None = None  # completes a record before it is written
    provenance: ProvenanceCollector | None = None  # None: environments of jobs are not recorded
    secrets: dict[str, SecretValues] = field(default_factory=dict)  # by job, until its end; see ALL_JOBS

    def begin_provenance(self, job: Job) -> str:
        """Starts collecting the job's environment. Returns its digest."""
        return "" if self.provenance is None else self.provenance.begin(job)

    def complete_record(self, record: Record) -> Record:
        """Returns the record to store: completed, without secrets."""
        if self.complete is not None:
            record = self.complete(record)
        if self.provenance is not None:
            record = self.provenance.complete(record)
        return self._without_secrets(record) if self.secrets else record

    def _without_secrets(self, record: Record) -> Record:
        secrets = self.secrets_of(record.job.uuid)
        if not secrets or record.outcome is None:
            return record
        self.secrets.pop(record.job.uuid, None)
        return replace(record, outcome=secrets.hide_in_outcome(record.outcome))

    def secrets_of(self, uuid: str) -> SecretValues:
        """Returns the secrets of the job and of all jobs."""
        own, common = self.secrets.get(uuid), self.secrets.get(ALL_JOBS)
        return own | common if own and common else own or common or NO_SECRETS

    def add_secrets(self, secrets: SecretValues, uuid: str = ALL_JOBS) -> None:
        """Hides them in the outcome of the job, or of all jobs."""
        if secrets:
            self.secrets[uuid] = secrets | self.secrets.get(uuid, NO_SECRETS)

    def multi_node_job(self, job: Job) -> "MultiNodeJob | None":
        """Returns the coordinator of a job that may have processes on other nodes."""
        return None if self.nodes is None else self.nodes(self, job)


class PreparedLauncher(Struct, frozen=True):
    """Launcher on standby with the process that will become the job, in groups of its own (None: process
    tree)."""

    launcher: LauncherProcess
    groups: JobGroups | None


def limits_key(uuid: str) -> str:
    """Key of the sampler for checks of a job's limits."""
    return f"{uuid} (limits)"
