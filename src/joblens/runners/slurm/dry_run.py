"""Slurm dry run: the sbatch requests of a run, stage by stage, by the same code as in a run."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.placement import (
    ALLOCATION,
    ARRAY,
    JOB,
    WORKER,
    Capacity,
    PlacementRequest,
    PlannedRequest,
    PreviewStep,
)
from joblens.model.clusters.slurm_notation import gpus_in
from joblens.model.runs.plan import Plan
from joblens.runners.slurm.orders import SlurmOrder, SlurmOrders
from joblens.runners.slurm.packing import LargestNode
from joblens.runners.slurm.terms import Options, memory_asked

JOB_ID = "JOB"  # instead of ids that a run makes


class Draft(Struct, kw_only=True):
    stage: int
    order: SlurmOrder
    jobs: list[int]
    count: int = 1
    action: int | None = None
    is_local: bool = False  # a worker on this machine, by an action of scheduler_type local


class SlurmDrafts:
    """Drafts of requests. Allocations are assumed to stay for later stages. In a run they end when they are
    idle, and are requested again."""

    def __init__(self, plan: Plan, orders: SlurmOrders) -> None:
        self._plan = plan
        self._orders = orders
        self._serving: dict[str, tuple[Options, Draft]] = {}  # by queue
        self.drafts: list[Draft] = []

    def add(self, step: PreviewStep) -> None:
        for action in step.actions:
            self._add_action(step.stage, action)
        self._add_jobs(step.stage, step.requests)

    def _add_action(self, stage: int, action: int) -> None:
        if not self._orders.uses_actions:
            return
        spec = self._plan.actions[action].spec
        queues = self._orders.queues_of(spec.scheduler or "")
        self._orders.mark_requested(queues)
        if spec.scheduler_type == "local":
            order = SlurmOrder(
                {}, spec.scheduler or "worker", queues=queues, most_jobs=spec.max_parallel_jobs
            )
            count = spec.num_allocations or 1
            draft = Draft(stage=stage, order=order, jobs=[], count=count, action=action, is_local=True)
            self._add(draft)
            return
        self._add_all(stage, self._orders.action_allocations(spec), action)

    def _add_jobs(self, stage: int, requests: Sequence[PlacementRequest]) -> None:
        queued = [
            replace(request, queue=self._orders.queue_of(self._plan.jobs[int(request.uuid)]))
            for request in requests
        ]
        self._add_all(stage, self._orders.orders(queued, self._options_of))
        alone = {uuid for draft in self.drafts if draft.stage == stage for uuid in draft.order.uuids}
        shared = [one for one in queued if one.uuid not in alone]
        waiting = [one for one in shared if one.queue not in self._serving]
        if waiting:  # no action has requested nodes: a run does not wait for an action that does not come
            self._add_all(stage, self._orders.orders(waiting, self._options_of))
        for request in shared:
            if request.queue in self._serving:
                self._serving[request.queue][1].jobs.append(int(request.uuid))

    def _options_of(self, queue: str) -> Options | None:
        serving = self._serving.get(queue)
        return serving[0] if serving is not None else None

    def _add_all(self, stage: int, orders: Sequence[SlurmOrder], action: int | None = None) -> None:
        """Combines equal allocations into one draft with their number."""
        last: Draft | None = None
        for order in orders:
            if last is not None and order.queues and last.order == order:
                last.count += 1
                continue
            jobs = [int(uuid) for uuid in order.uuids]
            last = Draft(stage=stage, order=order, jobs=jobs, action=action)
            self._add(last)

    def _add(self, draft: Draft) -> None:
        self.drafts.append(draft)
        for queue in draft.order.queues:
            self._serving[queue] = (draft.order.options, draft)


def planned_request(draft: Draft, argv: Sequence[str], script: str) -> PlannedRequest:
    order = draft.order
    if draft.is_local:
        return PlannedRequest(
            stage=draft.stage,
            kind=WORKER,
            name=order.name,
            count=draft.count,
            jobs=tuple(draft.jobs),
            action=draft.action,
            at_once=order.most_jobs,
        )
    options = order.options
    return PlannedRequest(
        stage=draft.stage,
        kind=ALLOCATION if order.queues else ARRAY if order.is_array else JOB,
        name=order.name,
        count=draft.count,
        jobs=tuple(draft.jobs),
        action=draft.action,
        nodes=_number(options.get("nodes"), 1),
        cpus=_cpus(options),
        memory_bytes=memory_asked(options),
        gpus=gpus_in(options.get("gres", "")) or 0,
        walltime_s=order.time_s,
        partition=options.get("partition", ""),
        at_once=order.most_jobs,
        argv=tuple(argv),
        script=script,
    )


def _number(word: str | None, default: int) -> int:
    return int(word) if word is not None and word.isdecimal() else default


def _cpus(options: Options) -> float | None:
    each = options.get("cpus-per-task")
    if each is None or not each.isdecimal():
        return None
    return float(int(each) * _number(options.get("ntasks-per-node"), 1))


def capacity_of(largest_nodes: Sequence[LargestNode]) -> tuple[Capacity, ...]:
    return tuple(
        Capacity(
            name=largest.partition,
            count=largest.nodes,
            cpus=largest.cpus,
            memory_bytes=largest.memory_bytes,
            gpus=largest.gpus,
            time_limit_s=largest.time_limit_s,
            is_default=largest.is_default,
        )
        for largest in largest_nodes
    )
