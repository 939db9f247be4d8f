"""One command on a cluster: a run of one job, driven like any other run. Its record and its ticket are in
the store before the run is driven, so its driver follows it like a job that an earlier driver has queued.
Users see only the job."""

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress

from msgspec.structs import replace

from joblens.agent.runs.view import NoView
from joblens.agent.runtime.ownership import RunLock
from joblens.app.clusters.engine import ClusterEngine
from joblens.app.driving.checks import open_engine, refuse_inside_a_job
from joblens.app.driving.detaching import detach_run
from joblens.app.jobs.logs import OutputFollower
from joblens.app.queue.submission import QueueRequest, make_tickets
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import StoreConnection, Warn, logs_root, spool_dir, store_name
from joblens.files.private import make_private_folder
from joblens.model.delivery import Ticket
from joblens.model.errors import InputError, JoblensError, StoreError, UnknownRun
from joblens.model.jobs.job import Job, Record, RunLink
from joblens.model.runs.run import COMMAND, JobState, Run, RunOptions, Workflow
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobQueued, RunCreated, TicketMade, WorkflowCreated
from joblens.plan.commands.command_lines import PLAN_NAME, CommandSpec, plan_of_command, text_of_command
from joblens.ports.store import QueueStore, Store

_SOURCE = "joblens run --engine"  # in place of a file; each user has one such workflow per store


def create_command_run(
    request: QueueRequest,
    options: RunOptions,
    connection: StoreConnection,
    settings: Settings,
    config: str | None,
    warn: Warn,
) -> tuple[Run, Record]:
    """Raises InputError or PlanError for a command that can never run there, PlacingError if the cluster
    does not answer: nothing is written then."""
    ((job, ticket),) = make_tickets([request], settings)
    folder = os.path.abspath(logs_root(settings))
    make_private_folder(folder)
    spec = CommandSpec(name=job.name, requirements=job.requirements, retry_lost=ticket.retry_lost)
    run = Run(
        uuid=new_uuid(),
        workflow_uuid="",
        created_at_us=job.created_at_us,
        spec_text=text_of_command(spec),
        spec_format=COMMAND,
        jobs=1,
        options=replace(options, output_dir=folder, cwd=options.cwd or os.getcwd(), interrupt="kill"),
        user=current_user(),
        host=os.uname().nodename,
    )
    plan = plan_of_command(run.spec_text)
    with closing(open_engine(plan, run.options, settings, config, warn)) as engine:
        engine.check({0})
    queue = ClusterEngine(run, plan, settings, config, warn).queue_of(plan.jobs[0])
    job, ticket = _of_run(job, ticket, run, queue, os.path.join(folder, job.uuid))
    try:
        store = connection.to_write().direct()
        run = replace(run, workflow_uuid=_workflow(store).uuid)
        store.apply([RunCreated(run), JobQueued(job), TicketMade(ticket)])
        return store.find_run(run.uuid), store.find(job.uuid)
    except StoreError as error:
        raise StoreError(f"the job cannot be queued: {error}", hint=error.hint) from error


def _of_run(job: Job, ticket: Ticket, run: Run, queue: str, folder: str) -> tuple[Job, Ticket]:
    """The driver sends the notification, not the worker: it also knows the end of a job whose node was
    lost."""
    job = replace(job, queue=queue, run=RunLink(run.uuid, 0, is_command=True), notify=())
    order = replace(ticket.order, folder=folder, notify=())
    return job, replace(ticket, queue=queue, order=order)


def _workflow(store: Store) -> Workflow:
    user = current_user()
    found = store.workflow_of_source(_SOURCE, PLAN_NAME, user)
    if found is not None:
        return found
    made = Workflow(
        uuid=new_uuid(),
        name=PLAN_NAME,
        created_at_us=time.time_ns() // 1000,
        user=user,
        source=_SOURCE,
        format=COMMAND,
    )
    store.apply([WorkflowCreated(made)])
    return store.workflow_of_source(_SOURCE, PLAN_NAME, user) or made


# ---- in the foreground ------------------------------------------------------------------------------------


class CommandView(NoView):
    """Passes the job's output on, and reports to `say`, if any, why it waits."""

    def __init__(self, store: Store, output: OutputFollower, say: Callable[[str], None] | None) -> None:
        self._store = store
        self._output = output
        self._say = say
        self._uuid = ""

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self._uuid = job_uuid

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        self._uuid = ""
        self._output.copy(record)

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        if state is JobState.PENDING:
            self._uuid = ""  # it waits, perhaps again

    def note(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def tick(self) -> None:
        if self._uuid:
            with suppress(JoblensError):  # the store is unavailable for a moment
                self._output.copy(self._store.find(self._uuid))


# ---- in the background ------------------------------------------------------------------------------------


def detach_command(
    request: QueueRequest,
    options: RunOptions,
    connection: StoreConnection,
    settings: Settings,
    config: str | None,
    warn: Warn,
    notify: str | None = None,
) -> Record:
    """Queues the job and starts its driver. Withdraws the job if no driver can be started."""
    refuse_inside_a_job()
    run, record = create_command_run(request, options, connection, settings, config, warn)
    try:
        detach_run(run, settings, config, notify)
    except JoblensError:
        connection.to_write().withdraw(record.job.uuid)
        raise
    return record


def keep_driven(store: QueueStore, record: Record, settings: Settings, config: str | None) -> None:
    """Restarts the driver of a command whose driver was killed. Only on the machine that had it;
    elsewhere it is unknown whether it is alive."""
    link = record.job.run
    if link is None or not link.is_command or record.status.is_final:
        return
    run = store.find_run(link.run_uuid)
    if run.host != os.uname().nodename or run.user != current_user():
        return
    if RunLock(spool_dir(store_name(settings)), run.uuid).holder() is None:
        detach_run(run, settings, config)


def cluster_options_of(record: Record, store: Store) -> RunOptions | None:
    """Returns options of the run if a cluster ran the job; None: no cluster did."""
    link = record.job.run
    if link is None:
        return None
    try:
        options = store.find_run(link.run_uuid).options
    except (UnknownRun, InputError):
        return None
    return options if options.engine in ("ray", "slurm") else None
