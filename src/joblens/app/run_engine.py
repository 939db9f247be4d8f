"""A run whose jobs are carried out by workers of a queue: what it stands on, and what it is offered."""

from collections.abc import Collection
from contextlib import closing

from msgspec.structs import replace

from joblens.agent.run_tickets import QueueSide
from joblens.app.bells import (
    StartedWorker,
    check_broker,
    living_workers,
    plain_bell,
    settings_of_run,
)
from joblens.app.cluster_engine import check_cluster, is_cluster
from joblens.app.drivers import Warn, open_deliveries
from joblens.app.machine_offer import check_fit, less_reserve, machine_offer, without_names
from joblens.app.owning import current_user
from joblens.app.queueing import open_queue_store
from joblens.app.worker_calls import WorkerCaller, served_routes
from joblens.app.workflow_runs import enabled_places
from joblens.engine.offer import Offer
from joblens.model.delivery import WorkerInfo
from joblens.model.errors import InputError, PlanError
from joblens.model.plan import Plan
from joblens.model.run import RunOptions
from joblens.model.settings import Settings
from joblens.plan.labelled_jobs import jobs_elsewhere
from joblens.ports.bell import Bell
from joblens.ports.deliveries import Deliveries
from joblens.runners.broker_url import check_queue

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


def own_places(plan: Plan, options: RunOptions) -> frozenset[int] | None:
    """Of jobs that the run's own workers are to run; None: all."""
    enabled = enabled_places(plan, options)
    elsewhere = jobs_elsewhere(plan, options.labels)
    if not elsewhere:
        return enabled
    return (frozenset(range(len(plan.jobs))) if enabled is None else enabled) - elsewhere


def run_offer(plan: Plan, options: RunOptions, settings: Settings, warn: Warn) -> Offer:
    """What all workers of the run's queues have together; where there are none yet, what this machine has."""
    queues = check_queues(plan, options, settings)
    with closing(open_deliveries(settings, warn)) as deliveries:  # type: ignore[type-var]  # the store itself
        workers = _workers_of(queues, settings, deliveries)
        is_started_here = isinstance(_peek(settings, deliveries), StartedWorker)
    if not workers:
        if not is_started_here:
            names = ", ".join(sorted(queues))
            warn(f"no worker serves the queue {names} yet: jobs wait for one (joblens worker)")
        return without_names(machine_offer(options))
    return _together(workers, options)


def _workers_of(queues: set[str], settings: Settings, deliveries: Deliveries) -> list[WorkerInfo]:
    return [
        worker
        for worker in living_workers(settings, deliveries)
        if queues & set(worker.queues)
        and not worker.labels  # they are no part of what the run may fill
        and (worker.any_user or worker.user == current_user())
    ]


def _peek(settings: Settings, deliveries: object) -> Bell | None:
    if settings.queue.broker:
        return None
    bell = plain_bell(settings, deliveries)  # type: ignore[arg-type]
    bell.close()
    return bell


def _together(workers: Collection[WorkerInfo], options: RunOptions) -> Offer:
    """A job with K CPUs takes K places of a worker, so places are what is counted."""
    memory = [less_reserve(worker.memory_bytes) for worker in workers if worker.memory_bytes is not None]
    return Offer(
        cpus=options.cpus if options.cpus is not None else float(sum(one.concurrency for one in workers)),
        memory_bytes=options.memory_bytes if options.memory_bytes is not None else sum(memory),
        # Which devices a job gets is for its worker to say.
        nameless_gpus=len(options.gpus) if options.gpus is not None else sum(one.gpus for one in workers),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def check_for_workers(
    plan: Plan, options: RunOptions, settings: Settings, config: str | None, again: tuple[int, ...] | None
) -> None:
    """Before anything of the run is written. Raises PlanError or InputError for what no worker could take."""
    settings = settings_of_run(settings, options)
    if is_cluster(options.engine):
        check_cluster(plan, options, settings, config, again)
        return
    check_broker(settings)
    offer = run_offer(plan, options, settings, lambda _text: None)  # warnings come when it is driven
    places = own_places(plan, options)
    check_fit(plan, offer, places)
    check_fit(plan, _most_of_one(plan, options, settings, offer), places)


def _most_of_one(plan: Plan, options: RunOptions, settings: Settings, together: Offer) -> Offer:
    """What the best of the workers has: a job cannot be spread over several."""
    queues = check_queues(plan, options, settings)
    with closing(open_deliveries(settings, lambda _text: None)) as deliveries:  # type: ignore[type-var]
        workers = [one for one in _workers_of(queues, settings, deliveries) if one.broker]
    if not workers:
        return together  # one is started here, and takes what there is
    memory = [less_reserve(one.memory_bytes) for one in workers if one.memory_bytes is not None]
    return replace(
        together,
        memory_bytes=max(memory) if options.memory_bytes is None and memory else together.memory_bytes,
        nameless_gpus=max(one.gpus for one in workers) if options.gpus is None else together.nameless_gpus,
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
