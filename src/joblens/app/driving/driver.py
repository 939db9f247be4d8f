"""Driver of a run: from its present state to its end."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, structs

from joblens.agent.attempts.preparation import RunSetup
from joblens.agent.cgroups.login_session import name_stop
from joblens.agent.runs.driver import RunDriver
from joblens.agent.runs.facts import RunFacts, secrets_of_batch
from joblens.agent.runs.signals import ProcessSignals, RunSignals, wakeups_ignored
from joblens.agent.runs.view import NoView, RunView, ThreadedView
from joblens.agent.runtime.ownership import RunLock, remove_idle_folders
from joblens.agent.session.context import AgentContext
from joblens.app.jobs.preparation import SubmitEnvironment, probes_of
from joblens.app.jobs.supervisor import allow_many_files
from joblens.app.runs.control import driven_by_another
from joblens.app.runs.lookup import ReusedResults, reused_events, reused_results
from joblens.app.runs.records import driven_before_s, earlier_durations, enabled_indices, jobs_to_run
from joblens.app.wiring.agent_context import OwnLog, close_context, open_context, open_recovery
from joblens.app.wiring.drivers import open_store, spool_dir, store_for_jobs, store_name
from joblens.app.wiring.journals import ContextJournals
from joblens.app.wiring.machine import check_fit, machine_offer
from joblens.engine.schedule.capacity import AHEAD_OF_WORKERS, Choices, RunCapacity
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import Plan, growing
from joblens.model.runs.run import (
    DatasetFinalized,
    JobsSpawned,
    JobState,
    OutputsMissing,
    Run,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
)
from joblens.model.settings import Settings
from joblens.model.writes import JobEnded, RunNoted, Write
from joblens.plan.workflows.graph import jobs_elsewhere
from joblens.ports.store import Store
from joblens.stores.wrappers.journal import JournaledStore

if TYPE_CHECKING:
    from joblens.agent.clusters.tickets import QueueSide
    from joblens.app.clusters.engine import ClusterEngine


MakeView = Callable[[Run, Plan, RunCapacity], RunView]


class RunOutcome(Struct, frozen=True, kw_only=True):
    run: Run
    plan: Plan  # with added jobs
    status: RunStatus
    states: tuple[JobState, ...]  # by index in the plan
    whys: Mapping[int, str]
    wall_s: float
    was_interrupted: bool = False
    interrupted_by: int | None = None  # the signal

    def counts(self) -> dict[JobState, int]:
        return dict(sorted(Counter(self.states).items()))


class _Past(NamedTuple):
    """Facts of the run before this driver."""

    events: list[RunEvent]
    reused: ReusedResults | None  # outcomes of an earlier run that count in this one
    base_events: list[RunEvent]  # of that run


def drive(  # noqa: PLR0913 - one field each
    run: Run,
    plan: Plan,
    settings: Settings,
    *,
    make_view: MakeView | None = None,
    log: OwnLog | None = None,
    lock: RunLock | None = None,
    config: str | None = None,
    store: JournaledStore | None = None,
    signals: RunSignals | None = None,
) -> RunOutcome:
    """Drives the run from its present state to its end. `lock`: lock of this run, if already taken.
    `store`: a connection of the caller, which stays open. `signals`: None for those of this process.
    Raises RunIsDriven if another process drives the run."""
    spool = spool_dir(store_name(settings))  # now: the store may be gone at the end
    log = log or OwnLog(settings.logs)
    signals = signals or ProcessSignals()
    with wakeups_ignored() if signals.owns_process else nullcontext():
        if lock is None:
            lock = RunLock(spool, run.uuid)
            if not lock.take():
                raise driven_by_another(run, lock)
            if not signals.owns_process:
                lock.refuse_signals()
        try:
            with nullcontext(store) if store is not None else closing(open_store(settings, log.warn)) as used:
                return _RunSession(run, plan, settings, log, config, used, signals).drive(make_view)
        finally:
            lock.release()
            remove_idle_folders(spool)


class _RunSession:
    def __init__(
        self,
        run: Run,
        plan: Plan,
        settings: Settings,
        log: OwnLog,
        config: str | None,
        store: JournaledStore,
        signals: RunSignals,
    ) -> None:
        from joblens.app.queue.notifiers import settings_of_run
        from joblens.app.runs.specs import hide_names, stored_secrets

        settings = settings_of_run(settings, run.options)
        self._run = run
        self._secrets = stored_secrets(run, settings)
        for batch in run.spawned:
            self._secrets = self._secrets | secrets_of_batch(batch)
        self._plan = growing(hide_names(plan, self._secrets))
        self._settings = settings
        self._log = log
        self._config = config
        self._cluster: ClusterEngine | None = None
        self._offer = self._make_offer()
        self._driver: RunDriver | None = None
        self._store = store
        self._signals = signals
        self._is_over = False

    def _make_offer(self) -> RunCapacity:
        options = self._run.options
        if options.engine == "local":
            return machine_offer(options)
        from joblens.app.clusters import engine as cluster_engine
        from joblens.app.clusters.engine import QueueCapacity

        if cluster_engine.is_cluster(options.engine):
            self._cluster = cluster_engine.ClusterEngine(
                self._run, self._plan, self._settings, self._config, self._log.warn
            )
            return self._cluster.offer()
        offer = QueueCapacity(self._plan, options, self._settings, self._log.warn).offer()
        indices = jobs_to_run(self._plan, options, self._run.again)
        check_fit(self._plan, offer, indices - jobs_elsewhere(self._plan, options.labels))
        return offer

    def _open_side(self, context: AgentContext) -> "QueueSide | None":
        if self._run.options.engine == "local":
            return None
        if self._cluster is not None:
            cluster, journals = self._cluster, ContextJournals(context, self._store)
            return context.recorder.read(lambda store: cluster.side(store, journals))
        from joblens.app.clusters.engine import open_side

        return open_side(self._plan, self._run.options, self._settings, self._config, self._log.warn)

    def drive(self, make_view: MakeView | None) -> RunOutcome:
        context = open_context(
            self._settings,
            allow_many_files() if self._signals.owns_process else (),
            warn=self._log.warn,
            store=self._store,
            write_filter=self._without_secrets if self._secrets else None,
        )
        context = structs.replace(context, complete=name_stop)
        context.add_secrets(self._secrets)
        side: QueueSide | None = None
        view: NoView | ThreadedView = NoView()
        try:
            shown = self._offer if self._cluster is None else self._cluster.shown_offer(self._offer)
            if make_view is not None:
                view = ThreadedView(make_view(self._run, self._plan, shown), self._log.warn)
            facts = RunFacts(context, self._run.uuid, self._plan)
            schedule = self._schedule(context)
            setup = self._setup()
            side = self._open_side(context)
            recovery = open_recovery(context, self._settings)
            driver = RunDriver(setup, context, recovery, schedule, facts, view, side)
            self._driver = driver
            past = self._read_past(context, schedule, facts, driver)
            running = driver.adopt()
            self._restore(context, schedule, past, running)
            before_s = context.recorder.read(lambda store: driven_before_s(store, self._run))
            began_s = time.monotonic()
            started = RunStarted(
                context.owner,
                shown.cpus,
                shown.memory_bytes,
                shown.gpus,
                setup.logs_dir,
                options=structs.replace(self._run.options, parameters={}),
            )
            facts.note_now(started)
            status = RunStatus.FAILED
            try:
                status = driver.run(self._signals, running)
                status = self._note_end(facts, status)
                self._is_over = True
            except JoblensError:
                facts.note_now(RunEnded(RunStatus.STOPPED))  # it can be resumed when the reason is gone
                raise
            finally:
                ended_s = time.monotonic()
                view.close(status)
            self._note_added_jobs(driver)
            driven = RunOutcome(
                run=structs.replace(self._run, status=status),
                plan=self._plan,
                status=status,
                states=tuple(schedule.state_of(index) for index in range(len(self._plan.jobs))),
                whys=dict(schedule.whys),
                wall_s=before_s + ended_s - began_s,
                was_interrupted=driver.was_interrupted,
                interrupted_by=driver.interrupted_by,
            )
            self._after(context, setup)
            return driven
        finally:
            view.close(RunStatus.FAILED)  # unless it was closed
            if self._driver is not None:
                self._driver.wait()
            if side is not None:
                side.store.close()
            if self._cluster is not None:
                self._cluster.close(is_over=self._is_over)
            close_context(context, sweeps_all=True)

    def _note_end(self, facts: RunFacts, status: RunStatus) -> RunStatus:
        """Returns `stopped` if jobs were added after the driver's last poll: the run can be resumed.
        `app.runs.spawn` does the same for jobs that are added even later."""
        facts.note_now(RunEnded(status))
        late = 0 if status is RunStatus.STOPPED else facts.count_late_jobs()
        if late:
            status = RunStatus.STOPPED
            facts.note_now(RunEnded(status))
            jobs = "a job was" if late == 1 else f"{late:,} jobs were"
            self._log.warn(f"{jobs} added as the run ended; joblens resume runs them")
        return status

    def _note_added_jobs(self, driver: RunDriver) -> None:
        spawned = (*self._run.spawned, *driver.added_jobs.batches)
        self._run = structs.replace(self._run, spawned=spawned, jobs=len(self._plan.jobs))

    def _without_secrets(self, writes: Sequence[Write]) -> list[Write]:
        """Hides secrets in outcomes of jobs that an earlier process began, and in events."""
        return [self._without_secret(write) for write in writes]

    def _without_secret(self, write: Write) -> Write:
        if isinstance(write, JobEnded):
            return structs.replace(write, outcome=self._secrets.hide_in_outcome(write.outcome))
        if isinstance(write, RunNoted) and isinstance(write.event.fact, OutputsMissing | DatasetFinalized):
            return structs.replace(write, event=self._secrets.hide(write.event))
        return write

    def _schedule(self, context: AgentContext) -> Schedule:
        choices = Choices(
            enabled=enabled_indices(self._plan, self._run.options),
            enforce=self._run.options.enforce and self._settings.limits.enforce,
            expected_s=context.recorder.read(self._expected),
            may_go_ahead=self._plan.execution.staggered_start_s <= 0,
            may_grow=True,
            served_labels=None if self._run.options.engine == "local" else self._run.options.labels,
        )
        if self._cluster is not None:
            self._cluster.expect(choices.enabled, choices.expected_s)
        return Schedule(self._plan, self._offer, structs.replace(choices, **self._choices_of_queue()))

    def _choices_of_queue(self) -> dict[str, Any]:
        options = self._run.options
        if options.engine == "local":
            return {}
        if self._cluster is not None:
            # the cluster queues itself
            return {"may_go_ahead": False, "lost_is_final": True, "is_worker": False}
        # If the run has a time limit, nothing is started that would not fit.
        ahead = structs.replace(AHEAD_OF_WORKERS, limited_too=options.time_s is None)
        return {"ahead": ahead, "lost_is_final": True, "is_worker": False}

    def _expected(self, store: Store) -> dict[int, float]:
        """Returns durations of earlier runs, for the order of jobs."""
        if (self._run.number or 1) == 1:
            return {}
        known = earlier_durations(store, self._run, self._plan)
        return {index: known[job.name] for index, job in enumerate(self._plan.jobs) if job.name in known}

    def _read_past(
        self, context: AgentContext, schedule: Schedule, facts: RunFacts, driver: RunDriver
    ) -> _Past:
        """Reads the events so far and adds jobs that were added after the run was read. Before `adopt`:
        an earlier driver may have queued such a job."""
        reused = context.recorder.read(lambda store: reused_results(store, self._run))
        base_events: list[RunEvent] = []
        if reused is not None:
            base_events = context.recorder.read(lambda store: reused_events(store, reused))
            facts.take_earlier(base_events)
        events = facts.begin()
        for event in events:
            if isinstance(event.fact, JobsSpawned):
                first = driver.inbox.take_batch(event.fact)
                if first is not None:
                    schedule.add_jobs(first)
        return _Past(events, reused, base_events)

    def _restore(self, context: AgentContext, schedule: Schedule, past: _Past, running: list[Record]) -> None:
        run = self._run
        results = context.recorder.read(lambda store: store.run_results(run.uuid))
        # Queued jobs are in flight, and must not be requeued.
        queued = {one.job.uuid for one in running if one.job.queue}
        results = [
            structs.replace(one, status=Status.RUNNING) if one.job_uuid in queued else one for one in results
        ]
        devices = {one.job.run.index: one.job.gpu_devices for one in running if one.job.run is not None}
        if past.reused is None:
            restore(schedule, results, past.events, devices=devices, now_us=context.clock.now_us())
            return
        restore(
            schedule,
            results,
            past.events,
            past.reused.results,
            again=run.again,
            base_events=past.base_events,
            devices=devices,
            now_us=context.clock.now_us(),
        )

    def _setup(self) -> RunSetup:
        settings, run = self._settings, self._run
        here = SubmitEnvironment.here()
        cwd = run.options.cwd or here.cwd
        output_dir = os.path.normpath(os.path.join(cwd, run.options.output_dir))
        return RunSetup(
            run=run,
            plan=self._plan,
            environ=here.environ,
            recorded_env=here.recorded_env,
            user=here.user,
            cwd=cwd,
            store_url=store_for_jobs(settings, is_elsewhere=run.options.engine != "local"),
            output_dir=output_dir,
            # The ticket of a single command names the job's own folder.
            logs_dir=output_dir if run.is_command else self._claim_logs_dir(os.path.abspath(output_dir)),
            enforce=run.options.enforce and settings.limits.enforce,
            monitor=run.options.monitor and settings.job_metrics.enabled,
            probes=probes_of(run.options.probes, settings),
            accounting=settings.limits.accounting,
            grace_s=settings.limits.grace,
            output_max_bytes=settings.output.max_size,
            grid_co2_g_per_kwh=settings.energy.grid_co2_g_per_kwh,
            secrets=self._secrets,
            has_traces=settings.otel.enabled,
        )

    def _claim_logs_dir(self, output_dir: str) -> str:
        """Warns if another store uses the folder that belongs to the run's number."""
        from joblens.app.driving.outputs import claim_run_folder

        run = self._run
        usual = os.path.join(output_dir, "job_output", f"{run.workflow_number or 0}_{run.number or 0}")
        try:
            folder = claim_run_folder(run, output_dir, self._settings)
        except OSError:
            return usual  # the first job reports that it cannot be written
        if folder not in (usual, run.logs_dir):
            self._log.warn(f"{usual} belongs to another run; output of this one goes to {folder}")
        return folder

    def _after(self, context: AgentContext, setup: RunSetup) -> None:
        from joblens.app.driving.outputs import after_run

        try:
            context.recorder.read(
                lambda store: after_run(store, self._run, self._plan, setup, self._settings, self._log)
            )
        except JoblensError as error:  # the outcome of the run is known
            self._log.warn(str(error))
