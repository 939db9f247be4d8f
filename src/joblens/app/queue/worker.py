"""Worker process: opens store, journal, fences, broker and signals."""

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

import joblens
from joblens.agent.cgroups.login_session import name_stop, stop_reason, system_unit
from joblens.agent.nodes.jobs import MultiNodeJobs
from joblens.agent.queue.claimed_jobs import ClaimedJob, WorkerPlan, WorkerView
from joblens.agent.queue.lost_workers import ALLOCATION_ID, PID_NAMESPACE
from joblens.agent.queue.node_worker import NodeWorker
from joblens.agent.queue.outcomes import WorkedOutcomes
from joblens.agent.queue.worker import QueueWorker
from joblens.agent.queue.write_filter import ClaimWriteFilter
from joblens.agent.recovery.orphans import sweep
from joblens.agent.runtime.ownership import SupervisorLock, remove_idle_folders
from joblens.agent.runtime.payload import Payload
from joblens.agent.session.context import AgentContext
from joblens.app.jobs.supervisor import AfterJobs, allow_many_files
from joblens.app.wiring.agent_context import OwnLog, close_context, current_user, open_context
from joblens.app.wiring.background_process import (
    Installation,
    keep_passwords_from_jobs,
    restart,
    store_environment,
)
from joblens.app.wiring.drivers import SystemClock, logs_root, open_deliveries, spool_dir, store_name
from joblens.app.wiring.journals import ContextJournals
from joblens.app.wiring.machine import less_reserve
from joblens.model.clusters.placement import AllocationEnding, is_for_any_worker
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Granularity, Placement, Record, Status
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.ports.workers import BrokerConsumer, MessageHandler, Notifier
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.host.machine_load import usable_cpus, usable_gpus, usable_memory_bytes
from joblens.stores.wrappers.fenced import FencedStore
from joblens.stores.wrappers.journal import JournaledStore

if TYPE_CHECKING:
    from joblens.runners.nodes.listener import NodeListener

Report = Callable[[str], None]
_UPKEEP_S = 60.0  # interval of retention and similar tasks
_CONSUMER_TIMEOUT_S = 5.0
_UPGRADE_CHECK_S = 1.0
_ANSWER_LEAST_S, _ANSWER_MOST_S = 3.0, 15.0
_OUTCOME_DELAY_S = 0.25  # between signals to the first and the last process of an allocation


class PilotOptions(Struct, frozen=True, kw_only=True):
    """Options of a pilot worker that a cluster started."""

    tickets: tuple[str, ...] = ()
    memory_bytes: int | None = None  # None: what it finds available
    gpus: tuple[str, ...] | None = None
    ends_at_s: float | None = None  # by the monotonic clock
    placement: Placement | None = None
    allocation_id: str = ""  # the cluster's own id
    user: str = ""
    listener: "NodeListener | None" = None  # notifies it of tickets
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # Asks the cluster why it ends the allocation; may wait for some seconds. None: it requeues jobs.
    why_ended: Callable[[], AllocationEnding | None] | None = None


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of the command line."""

    concurrency: int | None = None  # None: one job per CPU
    queues: tuple[str, ...] = ()  # (): the one of the settings
    labels: tuple[str, ...] = ()  # (): it takes jobs without a label
    name: str = ""  # prefix; '': host and process
    any_user: bool = False
    pilot: PilotOptions | None = None


class WorkerObserver(WorkerView):
    """Reports the worker's state, and starts the work after the end of a job."""

    def __init__(
        self,
        settings: Settings,
        log: OwnLog,
        report: Report,
        has_ended: Callable[[Record, Claim], None] | None,
        listener: "NodeListener | None" = None,
    ) -> None:
        self._listener = listener
        self._report = report
        self._has_ended = has_ended
        self._after_jobs = AfterJobs(settings, log)
        self._next_upkeep_s = time.monotonic()
        self.counts: dict[Status, int] = {}
        self.when_known: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        self._report(text)

    def is_known(self) -> None:
        self.when_known()

    def ended(self, record: Record, claim: Claim) -> None:
        self.counts[record.status] = self.counts.get(record.status, 0) + 1
        if self._has_ended is not None:
            self._has_ended(record, claim)
        if self._listener is not None:
            self._listener.has_ended([record.job.uuid])
        order = claim.ticket.order
        is_due = time.monotonic() > self._next_upkeep_s
        if is_due or order.notify or record.job.granularity is Granularity.TIME_SERIES:
            self._next_upkeep_s = time.monotonic() + _UPKEEP_S
            self._after_jobs.put(record, _payload(record, claim) if order.notify else None)

    def has_run(self, uuid: str, seconds: float | None) -> None:
        if self._listener is not None:
            self._listener.has_run(uuid, seconds)

    def let_go(self, uuids: Sequence[str]) -> None:
        if self._listener is not None and uuids:
            self._listener.has_let_go(uuids)

    def starting(self, held: ClaimedJob) -> None:
        if self._listener is not None and held.has_other_folder:
            self._listener.prints_to(held.uuid, held.attempt.folder, held.claim.ticket.order.folder)

    def close(self) -> None:
        self._after_jobs.close()


def _payload(record: Record, claim: Claim) -> Payload:
    order = claim.ticket.order
    cwd = order.cwd or (record.outcome.work_dir if record.outcome else "") or "/"
    return Payload(
        argv=order.argv,
        env={**os.environ, **order.env},
        cwd=cwd,
        logs_dir=record.attempt.logs_dir if record.attempt else "",
        output_max_bytes=0,
        notify=order.notify,
    )


def _node_clients(settings: Settings, pilot: PilotOptions | None) -> MultiNodeJobs | None:
    """For a worker whose jobs may have a connection to their other nodes."""
    if pilot is None or pilot.listener is None:
        return None
    from joblens.app.wiring.node_agents import nodes_here

    return nodes_here(settings.limits.cgroup_parent)


def make_info(settings: Settings, context: AgentContext, options: WorkerOptions, broker: str) -> WorkerInfo:
    layout, owner = read_layout(), context.owner
    cpus = usable_cpus(layout)
    return WorkerInfo(
        # Never the same twice: claims of a dead worker of that name would seem to be this one's.
        name=f"{options.name or f'{owner.host}-{owner.pid}'}-{secrets.token_hex(4)}",
        host=owner.host,
        pid=owner.pid,
        user=(options.pilot.user if options.pilot is not None else "") or current_user(),
        queues=options.queues or (() if options.pilot is not None else (settings.queue.name,)),
        concurrency=options.concurrency or max(1, int(cpus)),
        broker=broker,
        cpus=cpus,
        memory_bytes=_memory_of(options, layout),
        gpus=len(_gpus_of(options)),
        version=joblens.__version__,
        start_ticks=owner.start_ticks,
        boot_id=owner.boot_id,
        started_at_us=context.clock.now_us(),
        any_user=options.any_user or settings.queue.any_user,
        labels=options.labels,
        facts=_facts(context, options),
    )


def _facts(context: AgentContext, options: WorkerOptions) -> dict[str, Any]:
    allocation_id = options.pilot.allocation_id if options.pilot is not None else ""
    return {
        PID_NAMESPACE: context.owner.pid_namespace,
        **({ALLOCATION_ID: allocation_id} if allocation_id else {}),
    }


def _memory_of(options: WorkerOptions, layout: CgroupLayout) -> int | None:
    limit = options.pilot.memory_bytes if options.pilot is not None else None
    return limit if limit is not None else usable_memory_bytes(layout)


def _gpus_of(options: WorkerOptions) -> tuple[str, ...]:
    gpus = options.pilot.gpus if options.pilot is not None else None
    return gpus if gpus is not None else usable_gpus()


class RunningWorker:
    """A worker with all its parts."""

    def __init__(  # noqa: PLR0913 - each kind of worker has its own of these
        self,
        settings: Settings,
        options: WorkerOptions,
        log: OwnLog,
        report: Report,
        *,
        broker: str = "",
        notifier: Notifier | None = None,
        idle_s: float | None = None,
        may_leave: Callable[["RunningWorker"], bool] = lambda _: True,
        has_ended: Callable[[Record, Claim], None] | None = None,
    ) -> None:
        self._environ = {**os.environ, **store_environment(settings)}  # for a restart in place
        keep_passwords_from_jobs()
        self._report = report
        self._worker: QueueWorker | None = None
        self._pilot = options.pilot
        self._is_asking_why = False
        self._is_stopping = False  # by a signal
        fences: list[FencedStore] = []
        journaled: list[JournaledStore] = []

        def around(store: Store) -> Store:
            assert isinstance(store, JournaledStore)
            journaled.append(store)
            fences.append(FencedStore(store))
            return fences[0]

        pilot = options.pilot
        delay_s = _OUTCOME_DELAY_S if pilot is not None and _shares_allocation_with_jobs(pilot) else 0.0
        writes = ClaimWriteFilter(SystemClock(), delay_s)
        context = open_context(
            settings, allow_many_files(), warn=log.warn, around=around, write_filter=writes
        )
        self.info = make_info(settings, context, options, broker)
        claimed: dict[str, ClaimedJob] = {}
        if pilot is not None:
            fences[0].placement, fences[0].folders = pilot.placement, pilot.elsewhere
        complete = WorkedOutcomes(self.info.name, claimed, fences[0].placement_of).complete
        nodes = context.nodes or _node_clients(settings, pilot)
        self._complete = complete
        self.context = replace(context, kill_with_owner=True, complete=self._completed, nodes=nodes)
        self.watching = WorkerObserver(
            settings, log, report, has_ended, pilot.listener if pilot is not None else None
        )
        self._deliveries = open_deliveries(settings, log.warn, _answer_s(settings.queue.lease))
        self._worker = QueueWorker(
            self._plan(settings, options, idle_s, is_embedded=not broker and pilot is None),
            self.context,
            self._deliveries,
            claimed,
            fences[0],
            writes,
            notifier=notifier,
            view=self.watching,
            may_leave=lambda: may_leave(self),
            journals=ContextJournals(self.context, journaled[0]),
        )
        self._handler: MessageHandler = self._worker
        if pilot is not None and pilot.listener is not None:
            self._handler = NodeWorker(self._worker, fences[0], nodes)

    def _completed(self, record: Record) -> Record:
        """A job that systemd stopped at logout or shutdown is requeued, if it may run twice."""
        named = name_stop(record)
        if named is not record and self._worker is not None:
            self._worker.discard_outcome(record.job.uuid)
        return self._complete(named)

    def _plan(
        self, settings: Settings, options: WorkerOptions, idle_s: float | None, *, is_embedded: bool
    ) -> WorkerPlan:
        pilot, memory_bytes = options.pilot or PilotOptions(), self.info.memory_bytes
        if options.pilot is None and memory_bytes is not None:
            memory_bytes = less_reserve(memory_bytes)
        return WorkerPlan(
            info=self.info,
            lease_s=settings.queue.lease,
            poll_s=settings.queue.poll,
            logs_dir=os.path.abspath(logs_root(settings)),
            output_max_bytes=settings.output.max_size,
            accounting=settings.limits.accounting,
            environ=dict(os.environ),
            end_signal=signal.SIGTERM,
            idle_s=idle_s,
            every_queue=is_embedded,
            tickets=pilot.tickets,
            is_pilot=options.pilot is not None,
            is_timed=options.pilot is not None and pilot.listener is None,
            # A worker that was started for these jobs, or is the only one, cannot leave them to others.
            takes_any=is_embedded or bool(pilot.tickets) or pilot.listener is not None,
            memory_bytes=memory_bytes if pilot.listener is None else None,
            gpus=_gpus_of(options),
            ends_at_s=pilot.ends_at_s,
            streams_output=pilot.listener is not None,
            elsewhere=pilot.elsewhere,
        )

    @property
    def worker(self) -> QueueWorker:
        assert self._worker is not None
        return self._worker

    def run(
        self, consumer: BrokerConsumer | None = None, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        """Handles the process's signals meanwhile."""
        context, worker = self.context, self.worker
        self._take_signals(consumer)
        with suppress(JoblensError):
            context.recorder.read(
                lambda store: sweep(
                    context.spool_dir, store, context.clock.now_us(), context.host, context.accountant.parent
                )
            )
        thread = _start_consumer(consumer, worker, self._handler) if consumer is not None else None
        upgrade = _Upgrade(worker, consumer, self._report)
        if self._pilot is None:
            context.loop.add_timed(upgrade)
        on_ready()
        try:
            worker.run()
        finally:
            if consumer is not None and thread is not None:
                consumer.stop()
                thread.join(_CONSUMER_TIMEOUT_S)
            self.close()
        if upgrade.is_due and not self._is_stopping:
            restart("joblens.app.queue.worker", self._environ)

    def _take_signals(self, consumer: BrokerConsumer | None) -> None:
        worker, loop = self.worker, self.context.loop

        def end(number: int, _frame: FrameType | None) -> None:
            if consumer is not None and self._pilot is None:
                consumer.stop()
            is_by_cluster = number == signal.SIGTERM and self._pilot is not None
            is_first, self._is_stopping = not self._is_stopping, True
            loop.call(self._release_allocation if is_by_cluster else partial(self._end, is_first=is_first))

        signal.signal(signal.SIGUSR1, lambda *_: worker.poll_now())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        if not os.isatty(2):  # a service. Jobs would inherit SIG_IGN, but not a handler.
            signal.signal(signal.SIGHUP, lambda *_: None)
        signal.set_wakeup_fd(loop.wake_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))  # blocked by a restart

    def _end(self, *, is_first: bool) -> None:
        """Finishes running jobs, unless systemd stops them too, at logout or shutdown: then they are
        requeued. `is_first`: the first signal to stop."""
        worker = self.worker
        if is_first and worker.has_jobs and stop_reason({system_unit()}):
            worker.release_allocation()
        elif not is_first or not worker.is_ending:  # otherwise it already finishes them, for an upgrade
            worker.end()

    def _release_allocation(self) -> None:
        """The cluster ends the allocation. The reason decides whether its jobs run again."""
        worker, loop = self.worker, self.context.loop
        why = self._pilot.why_ended if self._pilot is not None else None
        if why is None or not worker.has_jobs:
            worker.release_allocation()
            return
        if self._is_asking_why:
            return
        self._is_asking_why = True
        worker.hold_outcomes()

        def ask() -> None:
            ending = why()
            loop.call(lambda: worker.release_allocation(ending))

        threading.Thread(target=ask, name="joblens-why", daemon=True).start()

    def close(self) -> None:
        self.watching.close()
        close_context(self.context)
        close = getattr(self._deliveries, "close", None)
        if close is not None:
            close()
        remove_idle_folders(self.context.spool_dir)


class _Upgrade:
    """Lets the worker finish its jobs when another version of joblens is installed (`loop.Timed`). The
    worker is then restarted in place."""

    def __init__(self, worker: QueueWorker, consumer: BrokerConsumer | None, report: Report) -> None:
        self._installation = Installation()
        self._worker = worker
        self._consumer = consumer
        self._report = report
        self._next_check_s = 0.0
        self.is_due = False

    def next_wake_s(self) -> float | None:
        return None if self.is_due or self._worker.is_ending else self._next_check_s

    def wake(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_check_s or self._worker.is_ending:
            return
        self._next_check_s = now_s + _UPGRADE_CHECK_S
        if self._installation.has_changed():
            self.is_due = True
            self._report(
                "another version of joblens was installed; restarting in place when its jobs have ended"
            )
            if self._consumer is not None:
                self._consumer.stop()
            self._worker.end()


def _shares_allocation_with_jobs(pilot: PilotOptions) -> bool:
    """Slurm kills everything in an allocation; nodes of Ray know nothing of this process."""
    return pilot.placement is not None and pilot.listener is None


def _answer_s(lease_s: float) -> float:
    """Returns the time limit of the store: a worker must know before its leases expire."""
    return min(_ANSWER_MOST_S, max(_ANSWER_LEAST_S, lease_s / 2))


def _start_consumer(
    consumer: BrokerConsumer, worker: QueueWorker, handler: MessageHandler
) -> threading.Thread:
    def consume() -> None:
        consumer.run(handler, worker.on_broker_connected, worker.on_broker_lost)

    thread = threading.Thread(target=consume, name="joblens-consumer", daemon=True)
    thread.start()
    return thread


# ---- the worker that is started on demand ------------------------------------------------------------------


def run_embedded(settings: Settings, lock: SupervisorLock, log: Report, on_ready: Callable[[], None]) -> None:
    own_log = OwnLog(settings.logs, lambda text, level: log(f"{level}: {text}"))

    def may_leave(running: RunningWorker) -> bool:
        """Jobs that were queued while the lock was held rely on one more poll."""
        lock.release()
        return not _has_work(running) or not lock.take()

    try:
        running = RunningWorker(
            settings, WorkerOptions(), own_log, log, idle_s=settings.queue.idle, may_leave=may_leave
        )
        running.run(on_ready=on_ready)
    finally:
        lock.release()
        remove_idle_folders(spool_dir(store_name(settings)))


def _has_work(running: RunningWorker) -> bool:
    user = running.info.user

    def waits(record: Record) -> bool:
        queue = record.job.queue
        is_for_it = bool(queue) and is_for_any_worker(queue) and record.job.user == user
        return record.status is Status.QUEUED and is_for_it

    with suppress(JoblensError):
        return any(map(waits, running.context.recorder.read(lambda store: store.running())))
    return False
