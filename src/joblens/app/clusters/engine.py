"""Engines of a run: workers of a queue or a cluster (Slurm, Ray), and their capacity."""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import cast

from msgspec import structs
from msgspec.structs import replace

from joblens.agent.clusters.placement import ClusterSide
from joblens.agent.clusters.tickets import QueueSide
from joblens.agent.queue.lost_workers import Journals
from joblens.app.clusters.worker_files import WorkerConfigFiles
from joblens.app.queue.notifiers import (
    StartedWorker,
    check_broker,
    check_broker_answers,
    living_workers,
    plain_notifier,
)
from joblens.app.queue.submission import WorkerCaller, open_queue_store, served_routes
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, open_deliveries, store_exists
from joblens.app.wiring.machine import (
    check_fit,
    less_reserve,
    machine_capacity,
    machine_offer,
    without_names,
)
from joblens.engine.progress.allocations import RunAllocations
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.clusters.placement import (
    QUEUE,
    Capacity,
    ClusterPreview,
    NodeCapacity,
    Placed,
    PlacementRequest,
    PlannedRequest,
    PreviewStep,
    queue_of_run,
)
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import InputError, MissingExtra, PlanError, how_to_install
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings
from joblens.plan.workflows.graph import Stage, jobs_elsewhere, schedules_nodes
from joblens.ports.cluster import ClusterBackend
from joblens.ports.store import Deliveries, Store
from joblens.ports.workers import Notifier, WorkerConfigWriter
from joblens.runners.celery.broker_url import check_queue

# Module and class of each engine; creating one has no side effects.
BACKENDS = {
    "ray": ("joblens.runners.ray.backend", "RayBackend"),
    "slurm": ("joblens.runners.slurm.backend", "SlurmBackend"),
}
_NO_RUN = "RUN"  # replaces the id of a run that does not exist yet
_MOST_UNDER_WAY = 2000  # jobs submitted to a cluster at once
_PLENTY_OF_CPUS, _PLENTY_OF_MEMORY, _PLENTY_OF_GPUS = 1e6, 1 << 60, 1_000_000


def is_cluster(engine: str) -> bool:
    return engine in BACKENDS


def open_backend(
    plan: Plan, options: RunOptions, settings: Settings, config_files: WorkerConfigWriter, warn: Warn
) -> ClusterBackend:
    """Raises MissingExtra if its library is not installed."""
    module, name = BACKENDS[options.engine]
    try:
        make = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingExtra(
            f"--engine {options.engine} needs {error.name}, which is not installed",
            hint=how_to_install(options.engine),
        ) from error
    return cast(ClusterBackend, make(plan, options, settings, config_files, warn))


class ClusterCapacity:
    """Cluster of a run that does not exist yet (`app.driving.checks`)."""

    def __init__(
        self, plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
    ) -> None:
        self._plan = plan
        self._options = options
        self._backend = open_backend(
            plan, options, settings, WorkerConfigFiles(settings, config, _NO_RUN), warn
        )
        self._capacity: tuple[Capacity, ...] = ()
        self._elsewhere = jobs_elsewhere(plan, options.labels)

    def check(self, indices: Collection[int]) -> None:
        """Raises PlanError for jobs that the cluster could never place, PlacingError if it does not
        answer."""
        own = set(indices) - self._elsewhere
        if self._backend.allocations is not None:
            self._backend.allocations.expect(own, {})
        self._backend.check([self._placement_request(index) for index in sorted(own)])

    def preview(
        self, stages: Sequence[Stage], indices: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        if self._backend.allocations is not None:
            self._backend.allocations.expect(set(indices) - self._elsewhere, expected_s)
        steps = [
            PreviewStep(
                stage.number,
                tuple(index for index in stage.actions if schedules_nodes(self._plan.actions[index].spec)),
                [self._placement_request(index) for index in stage.jobs if index not in self._elsewhere],
            )
            for stage in stages
        ]
        preview = self._backend.preview(steps)
        self._capacity = preview.capacity
        requests = (*preview.requests, *requests_for_labels(self._plan, stages, self._elsewhere))
        return structs.replace(preview, requests=requests)

    def offer(self) -> RunCapacity:
        """For the rehearsal. Ray starts as much as its nodes hold; Slurm decides itself."""
        offer = cluster_offer(self._options, self._backend.capacity())
        if self._options.engine != "ray" or not self._capacity:
            return offer
        return structs.replace(
            offer,
            cpus=min(offer.cpus, sum(node.cpus or 0.0 for node in self._capacity)),
            memory_bytes=min(offer.memory_bytes, sum(node.memory_bytes or 0 for node in self._capacity)),
            nameless_gpus=min(offer.nameless_gpus, int(sum(node.gpus for node in self._capacity))),
        )

    def close(self) -> None:
        self._backend.close(is_over=False)

    def _placement_request(self, index: int) -> PlacementRequest:
        return _placement_request(self._plan, index, self._options.engine)


def requests_for_labels(
    plan: Plan, stages: Sequence[Stage], elsewhere: Collection[int]
) -> Iterator[PlannedRequest]:
    """Returns jobs of a dry run that wait for workers with their label."""
    for stage in stages:
        labels: dict[str, list[int]] = {}
        for index in stage.jobs:
            if index in elsewhere:
                labels.setdefault(plan.jobs[index].label, []).append(index)
        for label, jobs in labels.items():
            name = f"workers with the label {label}"
            yield PlannedRequest(stage=stage.number, kind=QUEUE, name=name, count=len(jobs), jobs=tuple(jobs))


def _placement_request(plan: Plan, index: int, engine: str) -> PlacementRequest:
    job = plan.jobs[index]
    return PlacementRequest(
        uuid=str(index),
        queue=queue_of_run(engine, "", job.scheduler),
        name=job.name,
        requirements=job.requirements,
        spec_job=job.spec_job,
        scheduler=job.scheduler,
        priority=job.priority,
    )


class ClusterEngine:
    """The cluster of one driven run."""

    def __init__(self, run: Run, plan: Plan, settings: Settings, config: str | None, warn: Warn) -> None:
        self._run = run
        self._plan = plan
        self._settings = settings
        self._config = config
        self._warn = warn
        self._config_files = WorkerConfigFiles(settings, config, run.uuid)
        self._backend = open_backend(plan, run.options, settings, self._config_files, warn)

    def offer(self) -> RunCapacity:
        """Returns the capacity for jobs at once. Raises PlacingError."""
        offer = cluster_offer(self._run.options, self._backend.capacity())
        if self._run.options.engine != "slurm":
            return offer
        most = self._settings.slurm.most_queued
        return structs.replace(offer, most_jobs=min(offer.most_jobs or most, most))

    def expect(self, enabled: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        if self._backend.allocations is not None:
            again = self._run.again
            if again is not None:
                enabled = set(again) if enabled is None else set(again) & set(enabled)
            elsewhere = jobs_elsewhere(self._plan, self._run.options.labels)
            if elsewhere:  # they do not use allocations
                enabled = set(range(len(self._plan.jobs)) if enabled is None else enabled) - elsewhere
            self._backend.allocations.expect(enabled, expected_s)

    def shown_offer(self, offer: RunCapacity) -> RunCapacity:
        """Returns the capacity to show: nothing if the cluster sets no bound."""
        return structs.replace(
            offer,
            cpus=0.0 if offer.cpus >= _PLENTY_OF_CPUS else offer.cpus,
            memory_bytes=0 if offer.memory_bytes >= _PLENTY_OF_MEMORY else offer.memory_bytes,
            nameless_gpus=0 if offer.nameless_gpus >= _PLENTY_OF_GPUS else offer.nameless_gpus,
        )

    def side(self, store: Store, journals: Journals) -> QueueSide:
        """`store`: for the allocations of earlier drivers."""
        settings, run = self._settings, self._run
        return QueueSide(
            store=open_queue_store(settings, self._warn),
            call=ClusterSide(
                backend=self._backend,
                lease_s=settings.queue.lease,
                journals=journals,
                placed=earlier_allocations(store, run.uuid),
            ),
            queue_of=self._queue_of(),
            own_labels=frozenset(run.options.labels),
            served=served_routes(settings),
            call_labelled=WorkerCaller(settings, self._config, self._warn),
            retry_lost=settings.queue.retry_lost,
            most_deliveries=settings.queue.most_deliveries,
            warn=self._warn,
        )

    def queue_of(self, planned: PlannedJob) -> str:
        """Returns the queue of the job's ticket. Raises PlacingError if the cluster has to be asked and
        is unavailable."""
        return self._queue_of()(planned)

    def _queue_of(self) -> Callable[[PlannedJob], str]:
        """Jobs with a label are for workers that people start, on the queue that these serve."""
        run, allocations, usual = self._run, self._backend.allocations, self._settings.queue.name
        served = frozenset(run.options.labels)

        def queue_of(planned: PlannedJob) -> str:
            if planned.label and planned.label not in served:
                return planned.queue or usual
            if allocations is not None:
                return allocations.queue_of(planned)
            return queue_of_run(run.options.engine, run.uuid, planned.scheduler)

        return queue_of

    def close(self, *, is_over: bool) -> None:
        if is_over:
            self._config_files.close()


def cluster_offer(options: RunOptions, capacity: NodeCapacity | None) -> RunCapacity:
    """Returns as much as the cluster queues, except for explicit limits."""
    capacity = capacity or NodeCapacity()
    gpus = _PLENTY_OF_GPUS if capacity.gpus is None else capacity.gpus
    cpus = _PLENTY_OF_CPUS if capacity.cpus is None else float(capacity.cpus)
    memory = _PLENTY_OF_MEMORY if capacity.memory_bytes is None else capacity.memory_bytes
    return RunCapacity(
        cpus=cpus if options.cpus is None else options.cpus,
        memory_bytes=memory if options.memory_bytes is None else options.memory_bytes,
        nameless_gpus=gpus if options.gpus is None else len(options.gpus),
        time_s=options.time_s,
        most_jobs=min(options.most_jobs or _MOST_UNDER_WAY, _MOST_UNDER_WAY),
    )


def earlier_allocations(store: Store, run_uuid: str) -> tuple[Placed, ...]:
    """Returns allocations of earlier drivers of the run whose end was not reported."""
    return RunAllocations(event for _, event in store.run_events(run_uuid)).live


_SHOWN = 10


def open_side(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
) -> QueueSide:
    queues = check_queues(plan, options, settings)
    usual = check_queue(options.queue or settings.queue.name)

    def offer(deliveries: Deliveries) -> tuple[float, int] | None:
        workers = _workers_of(queues, settings, deliveries)
        total = _total_capacity(workers, options) if workers else None
        return None if total is None else (total.cpus, total.memory_bytes)

    return QueueSide(
        store=open_queue_store(settings, warn),
        call=WorkerCaller(settings, config, warn),
        queue_of=lambda planned: planned.queue or usual,
        own_labels=frozenset(options.labels),
        served=served_routes(settings),
        retry_lost=settings.queue.retry_lost,
        most_deliveries=settings.queue.most_deliveries,
        warn=warn,
        offer=offer,
    )


class QueueCapacity:
    """Workers of a run that does not exist yet (`app.driving.checks`). Creates no store."""

    def __init__(self, plan: Plan, options: RunOptions, settings: Settings, warn: Warn) -> None:
        self._plan = plan
        self._options = options
        self._settings = settings
        self._elsewhere = jobs_elsewhere(plan, options.labels)
        self._queues = check_queues(plan, options, settings)
        check_broker(settings)
        self._workers: list[WorkerInfo] = []
        self._is_started_here = not settings.queue.broker
        if store_exists(settings):
            with closing(open_deliveries(settings, warn)) as deliveries:  # type: ignore[type-var]  # the store
                self._workers = _workers_of(self._queues, settings, deliveries)
                self._is_started_here = isinstance(_peek(settings, deliveries), StartedWorker)
        if not self._workers and not self._is_started_here:
            names = ", ".join(sorted(self._queues))
            warn(f"no worker serves the queue {names}; jobs wait until one starts (joblens worker)")

    def check(self, indices: Collection[int]) -> None:
        """Raises PlanError for jobs that no worker could run."""
        offer, own = self.offer(), frozenset(indices) - self._elsewhere
        check_fit(self._plan, offer, own)
        check_fit(self._plan, self._most_of_one(offer), own)

    def offer(self) -> RunCapacity:
        """Returns the capacity of all workers of the run's queues; without workers, of this machine."""
        if self._workers:
            return _total_capacity(self._workers, self._options)
        return without_names(machine_offer(self._options))

    def _most_of_one(self, total: RunCapacity) -> RunCapacity:
        """Returns the capacity of the largest worker: a job cannot be split over several."""
        options = self._options
        workers = [one for one in self._workers if one.broker]
        if not workers:
            return total  # one is started here, and uses what there is
        memory = [less_reserve(one.memory_bytes) for one in workers if one.memory_bytes is not None]
        return replace(
            total,
            memory_bytes=max(memory) if options.memory_bytes is None and memory else total.memory_bytes,
            nameless_gpus=max(one.gpus for one in workers) if options.gpus is None else total.nameless_gpus,
        )

    def preview(
        self, stages: Sequence[Stage], indices: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        """Raises BrokerError if the broker does not answer."""
        broker = check_broker_answers(self._settings)
        if self._workers:
            where = f"{len(self._workers)} worker{'' if len(self._workers) == 1 else 's'}"
        elif self._is_started_here:
            where = "a worker starts on this machine when there is work"
        else:
            where = "no worker yet; jobs wait until one starts"
        return ClusterPreview(
            engine=self._options.engine,
            where=f"{broker}; {where}" if broker else where,
            capacity=self._capacity(),
            requests=tuple(self._requests(stages)),
        )

    def _capacity(self) -> tuple[Capacity, ...]:
        if not self._workers:
            return machine_capacity(self.offer()) if self._is_started_here else ()
        return tuple(
            Capacity(
                name=one.name,
                cpus=float(one.concurrency),
                memory_bytes=one.memory_bytes,
                gpus=one.gpus,
                queues=one.queues,
            )
            for one in self._workers
        )

    def _requests(self, stages: Sequence[Stage]) -> Iterator[PlannedRequest]:
        usual = self._options.queue or self._settings.queue.name
        for stage in stages:
            queues: dict[str, list[int]] = {}
            for index in stage.jobs:
                if index not in self._elsewhere:
                    queues.setdefault(self._plan.jobs[index].queue or usual, []).append(index)
            for queue, jobs in queues.items():
                yield PlannedRequest(
                    stage=stage.number, kind=QUEUE, name=queue, count=len(jobs), jobs=tuple(jobs)
                )

        yield from requests_for_labels(self._plan, stages, self._elsewhere)

    def close(self) -> None:
        pass


def _workers_of(queues: set[str], settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    return [
        worker
        for worker in living_workers(settings, deliveries)
        if queues & set(worker.queues)
        and not worker.labels  # they are not part of the run's capacity
        and (worker.any_user or worker.user == current_user())
    ]


def _peek(settings: Settings, deliveries: object) -> Notifier | None:
    if settings.queue.broker:
        return None
    notifier = plain_notifier(settings, deliveries)  # type: ignore[arg-type]
    notifier.close()
    return notifier


def _total_capacity(workers: Collection[WorkerInfo], options: RunOptions) -> RunCapacity:
    """A job with K CPUs takes K slots of a worker, so slots are counted."""
    memory = [less_reserve(worker.memory_bytes) for worker in workers if worker.memory_bytes is not None]
    return RunCapacity(
        cpus=options.cpus if options.cpus is not None else float(sum(one.concurrency for one in workers)),
        memory_bytes=options.memory_bytes if options.memory_bytes is not None else sum(memory),
        # The worker decides which devices a job gets.
        nameless_gpus=len(options.gpus) if options.gpus is not None else sum(one.gpus for one in workers),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def check_queues(plan: Plan, options: RunOptions, settings: Settings) -> set[str]:
    """Returns every queue that jobs of the run go to. Raises PlanError for invalid names."""
    usual = check_queue(options.queue or settings.queue.name)  # no job names one
    named = {job.queue or usual: job.name for job in plan.jobs}
    wrong = []
    for queue, job in named.items():
        try:
            check_queue(queue)
        except InputError as error:
            wrong.append(f"{job}: {error}")
    if wrong:
        raise PlanError("queues cannot be used:\n  " + "\n  ".join(wrong[:_SHOWN]))
    return set(named)
