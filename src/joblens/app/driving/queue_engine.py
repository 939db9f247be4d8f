"""A run whose jobs are carried out by workers of a queue: what it stands on, and what it is offered."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from msgspec.structs import replace

from joblens.agent.clusters.tickets import QueueSide
from joblens.app.clusters.engine import requests_for_labels
from joblens.app.queue.notifiers import (
    StartedWorker,
    check_broker,
    check_broker_answers,
    living_workers,
    plain_bell,
)
from joblens.app.queue.queueing import open_queue_store
from joblens.app.queue.worker_calls import WorkerCaller, served_routes
from joblens.app.wiring.drivers import Warn, open_deliveries, store_is_there
from joblens.app.wiring.machine_capacity import (
    check_fit,
    less_reserve,
    machine_capacity,
    machine_offer,
    without_names,
)
from joblens.app.wiring.owning import current_user
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.clusters.preview import QUEUE, Capacity, ClusterPreview, PlannedRequest
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import InputError, PlanError
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.plan.workflows.labelled_jobs import jobs_elsewhere
from joblens.plan.workflows.stages import Stage
from joblens.ports.broker import Notifier
from joblens.ports.deliveries import Deliveries
from joblens.runners.celery.broker_url import check_queue

_SHOWN = 10


def open_side(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, warn: Warn
) -> QueueSide:
    queues = check_queues(plan, options, settings)
    usual = check_queue(options.queue or settings.queue.name)

    def offer(deliveries: Deliveries) -> tuple[float, int] | None:
        workers = _workers_of(queues, settings, deliveries)
        together = _together(workers, options) if workers else None
        return None if together is None else (together.cpus, together.memory_bytes)

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


def run_offer(plan: Plan, options: RunOptions, settings: Settings, warn: Warn) -> RunCapacity:
    """Capacity of all workers of the run's queues together; where there are none yet, of this machine."""
    return QueueCapacity(plan, options, settings, warn).offer()


class QueueCapacity:
    """The workers of a run that does not exist yet (app.engine_capacity). Makes no store."""

    def __init__(self, plan: Plan, options: RunOptions, settings: Settings, warn: Warn) -> None:
        self._plan = plan
        self._options = options
        self._settings = settings
        self._elsewhere = jobs_elsewhere(plan, options.labels)
        self._queues = check_queues(plan, options, settings)
        check_broker(settings)
        self._workers: list[WorkerInfo] = []
        self._is_started_here = not settings.queue.broker
        if store_is_there(settings):
            with closing(open_deliveries(settings, warn)) as deliveries:  # type: ignore[type-var]  # the store
                self._workers = _workers_of(self._queues, settings, deliveries)
                self._is_started_here = isinstance(_peek(settings, deliveries), StartedWorker)
        if not self._workers and not self._is_started_here:
            names = ", ".join(sorted(self._queues))
            warn(f"no worker serves the queue {names} yet: jobs wait for one (joblens worker)")

    def check(self, places: Collection[int]) -> None:
        """Raises PlanError for what no worker could take."""
        offer, own = self.offer(), frozenset(places) - self._elsewhere
        check_fit(self._plan, offer, own)
        check_fit(self._plan, self._most_of_one(offer), own)

    def offer(self) -> RunCapacity:
        if self._workers:
            return _together(self._workers, self._options)
        return without_names(machine_offer(self._options))

    def _most_of_one(self, together: RunCapacity) -> RunCapacity:
        """Capacity of the largest of the workers: a job cannot be spread over several."""
        options = self._options
        workers = [one for one in self._workers if one.broker]
        if not workers:
            return together  # one is started here, and takes what there is
        memory = [less_reserve(one.memory_bytes) for one in workers if one.memory_bytes is not None]
        return replace(
            together,
            memory_bytes=max(memory) if options.memory_bytes is None and memory else together.memory_bytes,
            nameless_gpus=max(one.gpus for one in workers)
            if options.gpus is None
            else together.nameless_gpus,
        )

    def preview(
        self, stages: Sequence[Stage], places: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        """Raises BrokerError when the broker does not answer."""
        broker = check_broker_answers(self._settings)
        if self._workers:
            where = f"{len(self._workers)} worker{'' if len(self._workers) == 1 else 's'}"
        elif self._is_started_here:
            where = "a worker is started on this machine when there is work"
        else:
            where = "no worker yet: jobs wait for one"
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
        and not worker.labels  # they are no part of what the run may fill
        and (worker.any_user or worker.user == current_user())
    ]


def _peek(settings: Settings, deliveries: object) -> Notifier | None:
    if settings.queue.broker:
        return None
    bell = plain_bell(settings, deliveries)  # type: ignore[arg-type]
    bell.close()
    return bell


def _together(workers: Collection[WorkerInfo], options: RunOptions) -> RunCapacity:
    """A job with K CPUs takes K places of a worker, so places are what is counted."""
    memory = [less_reserve(worker.memory_bytes) for worker in workers if worker.memory_bytes is not None]
    return RunCapacity(
        cpus=options.cpus if options.cpus is not None else float(sum(one.concurrency for one in workers)),
        memory_bytes=options.memory_bytes if options.memory_bytes is not None else sum(memory),
        # Which devices a job gets is for its worker to say.
        nameless_gpus=len(options.gpus) if options.gpus is not None else sum(one.gpus for one in workers),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def check_queues(plan: Plan, options: RunOptions, settings: Settings) -> set[str]:
    """Every queue that jobs of the run go to. Raises PlanError for names that no queue can have."""
    usual = check_queue(options.queue or settings.queue.name)  # no job has said that
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
