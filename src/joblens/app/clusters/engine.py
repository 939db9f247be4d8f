"""Cluster engines: the driver of each, the capacity of its cluster, and its part in a run."""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import cast

from msgspec import structs

from joblens.agent.clusters.placement import ClusterSide
from joblens.agent.clusters.tickets import QueueSide
from joblens.agent.queue.lost_workers import Journals
from joblens.app.clusters.worker_files import WorkerConfigFiles
from joblens.app.queue.queueing import open_queue_store
from joblens.app.queue.worker_calls import WorkerCaller, served_routes
from joblens.app.wiring.drivers import Warn
from joblens.engine.progress.allocations import ClusterPlaces
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.clusters.placing import NodeCapacity, Placed, PlacementRequest, queue_of_run
from joblens.model.clusters.preview import QUEUE, Capacity, ClusterPreview, PlannedRequest, PreviewStep
from joblens.model.errors import MissingExtra, how_to_install
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings
from joblens.plan.workflows.labelled_jobs import jobs_elsewhere
from joblens.plan.workflows.stages import Stage, schedules_nodes
from joblens.ports.cluster import ClusterBackend, LooksAhead, QueueChoice
from joblens.ports.pilot_workers import WorkerConfigWriter
from joblens.ports.store import Store

# Where each is: its class is made with (plan, options, settings, desk, warn), which touches nothing yet.
PLACERS = {
    "ray": ("joblens.runners.ray.backend", "RayPlacer"),
    "slurm": ("joblens.runners.slurm.backend", "SlurmPlacer"),
}
_NO_RUN = "RUN"  # in the place of the id of a run that does not exist yet
_MOST_UNDER_WAY = 2000  # jobs that are handed to a cluster at once
_PLENTY_OF_CPUS, _PLENTY_OF_MEMORY, _PLENTY_OF_GPUS = 1e6, 1 << 60, 1_000_000


def is_cluster(engine: str) -> bool:
    return engine in PLACERS


def open_placer(
    plan: Plan, options: RunOptions, settings: Settings, desk: WorkerConfigWriter, warn: Warn
) -> ClusterBackend:
    """Raises MissingExtra where its library is not installed."""
    module, name = PLACERS[options.engine]
    try:
        make = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingExtra(
            f"--engine {options.engine} needs {error.name}, which is not installed",
            hint=how_to_install(options.engine),
        ) from error
    return cast(ClusterBackend, make(plan, options, settings, desk, warn))


class ClusterCapacity:
    """The cluster of a run that does not exist yet (app.engine_capacity)."""

    def __init__(
        self, plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
    ) -> None:
        self._plan = plan
        self._options = options
        self._placer = open_placer(
            plan, options, settings, WorkerConfigFiles(settings, config, _NO_RUN), warn
        )
        self._capacity: tuple[Capacity, ...] = ()
        self._elsewhere = jobs_elsewhere(plan, options.labels)

    def check(self, places: Collection[int]) -> None:
        """Raises PlanError for what the cluster could never place, PlacingError where it does not answer."""
        own = set(places) - self._elsewhere
        if isinstance(self._placer, LooksAhead):
            self._placer.expect(own, {})
        self._placer.check([self._parcel(index) for index in sorted(own)])

    def preview(
        self, stages: Sequence[Stage], places: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        if isinstance(self._placer, LooksAhead):
            self._placer.expect(set(places) - self._elsewhere, expected_s)
        steps = [
            PreviewStep(
                stage.number,
                tuple(index for index in stage.actions if schedules_nodes(self._plan.actions[index].spec)),
                [self._parcel(index) for index in stage.jobs if index not in self._elsewhere],
            )
            for stage in stages
        ]
        preview = self._placer.preview(steps)
        self._capacity = preview.capacity
        requests = (*preview.requests, *requests_for_labels(self._plan, stages, self._elsewhere))
        return structs.replace(preview, requests=requests)

    def offer(self) -> RunCapacity:
        """For the rehearsal. Ray starts as much as its nodes hold; Slurm decides for itself."""
        offer = cluster_offer(self._options, self._placer.room())
        if self._options.engine != "ray" or not self._capacity:
            return offer
        return structs.replace(
            offer,
            cpus=min(offer.cpus, sum(node.cpus or 0.0 for node in self._capacity)),
            memory_bytes=min(offer.memory_bytes, sum(node.memory_bytes or 0 for node in self._capacity)),
            nameless_gpus=min(offer.nameless_gpus, int(sum(node.gpus for node in self._capacity))),
        )

    def close(self) -> None:
        self._placer.close(is_over=False)

    def _parcel(self, index: int) -> PlacementRequest:
        return _parcel(self._plan, index, self._options.engine)


def requests_for_labels(
    plan: Plan, stages: Sequence[Stage], elsewhere: Collection[int]
) -> Iterator[PlannedRequest]:
    """Jobs of a dry run that wait for workers with their label."""
    for stage in stages:
        labels: dict[str, list[int]] = {}
        for index in stage.jobs:
            if index in elsewhere:
                labels.setdefault(plan.jobs[index].label, []).append(index)
        for label, jobs in labels.items():
            name = f"workers with the label {label}"
            yield PlannedRequest(stage=stage.number, kind=QUEUE, name=name, count=len(jobs), jobs=tuple(jobs))


def _parcel(plan: Plan, place: int, engine: str) -> PlacementRequest:
    job = plan.jobs[place]
    return PlacementRequest(
        uuid=str(place),
        queue=queue_of_run(engine, "", job.scheduler),
        name=job.name,
        requirements=job.requirements,
        spec_job=job.spec_job,
        scheduler=job.scheduler,
        priority=job.priority,
    )


class ClusterEngine:
    """What one driven run has of its cluster."""

    def __init__(self, run: Run, plan: Plan, settings: Settings, config: str | None, warn: Warn) -> None:
        self._run = run
        self._plan = plan
        self._settings = settings
        self._config = config
        self._warn = warn
        self._desk = WorkerConfigFiles(settings, config, run.uuid)
        self._placer = open_placer(plan, run.options, settings, self._desk, warn)

    def offer(self) -> RunCapacity:
        """What may be under way at once; Raises PlacingError."""
        offer = cluster_offer(self._run.options, self._placer.room())
        if self._run.options.engine != "slurm":
            return offer
        most = self._settings.slurm.most_queued
        return structs.replace(offer, most_jobs=min(offer.most_jobs or most, most))

    def expect(self, enabled: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        if isinstance(self._placer, LooksAhead):
            again = self._run.again
            if again is not None:
                enabled = set(again) if enabled is None else set(again) & set(enabled)
            elsewhere = jobs_elsewhere(self._plan, self._run.options.labels)
            if elsewhere:  # allocations are not for them
                enabled = set(range(len(self._plan.jobs)) if enabled is None else enabled) - elsewhere
            self._placer.expect(enabled, expected_s)

    def shown_offer(self, offer: RunCapacity) -> RunCapacity:
        """What people are told of it: nothing where the cluster takes as much as it is given."""
        return structs.replace(
            offer,
            cpus=0.0 if offer.cpus >= _PLENTY_OF_CPUS else offer.cpus,
            memory_bytes=0 if offer.memory_bytes >= _PLENTY_OF_MEMORY else offer.memory_bytes,
            nameless_gpus=0 if offer.nameless_gpus >= _PLENTY_OF_GPUS else offer.nameless_gpus,
        )

    def side(self, store: Store, journals: Journals) -> QueueSide:
        """`store`: to learn what an earlier driver had placed."""
        settings, run = self._settings, self._run
        return QueueSide(
            store=open_queue_store(settings, self._warn),
            call=ClusterSide(
                placer=self._placer,
                lease_s=settings.queue.lease,
                journals=journals,
                placed=placed_before(store, run.uuid),
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
        """Queue of the job's ticket. Raises PlacingError where the cluster has to be asked and is away."""
        return self._queue_of()(planned)

    def _queue_of(self) -> Callable[[PlannedJob], str]:
        """Jobs with a label are for workers that people start, on the queue that these serve."""
        run, placer, usual = self._run, self._placer, self._settings.queue.name
        served = frozenset(run.options.labels)

        def queue_of(planned: PlannedJob) -> str:
            if planned.label and planned.label not in served:
                return planned.queue or usual
            if isinstance(placer, QueueChoice):
                return placer.queue_of(planned)
            return queue_of_run(run.options.engine, run.uuid, planned.scheduler)

        return queue_of

    def close(self, *, is_over: bool) -> None:
        if is_over:
            self._desk.close()


def cluster_offer(options: RunOptions, room: NodeCapacity | None) -> RunCapacity:
    """As much as the cluster queues, but for what was said."""
    room = room or NodeCapacity()
    gpus = _PLENTY_OF_GPUS if room.gpus is None else room.gpus
    cpus = _PLENTY_OF_CPUS if room.places is None else float(room.places)
    memory = _PLENTY_OF_MEMORY if room.memory_bytes is None else room.memory_bytes
    return RunCapacity(
        cpus=cpus if options.cpus is None else options.cpus,
        memory_bytes=memory if options.memory_bytes is None else options.memory_bytes,
        nameless_gpus=gpus if options.gpus is None else len(options.gpus),
        time_s=options.time_s,
        most_jobs=min(options.most_jobs or _MOST_UNDER_WAY, _MOST_UNDER_WAY),
    )


def placed_before(store: Store, run_uuid: str) -> tuple[Placed, ...]:
    """What earlier drivers of the run had placed and of whose end nobody has told."""
    return ClusterPlaces(event for _, event in store.run_events(run_uuid)).live
