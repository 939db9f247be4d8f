"""Slurm orders: the sbatch requests for the jobs of a run, and the script of each.

The script contains only the name of a private file, because scripts can be read with `scontrol`. Paths are
absolute and nothing comes from the environment of the submitter, so that --export=NONE changes nothing."""

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.placement import PlacementRequest, queue_of_run
from joblens.model.errors import PlacingError, PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.redaction.secrets import redact_text
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import RunOptions
from joblens.model.runs.workflow_spec import ActionSpec
from joblens.model.settings import SlurmSettings
from joblens.plan.workflows.graph import jobs_elsewhere
from joblens.runners.slurm.packing import (
    JOBS,
    Demand,
    Packing,
    asked_by_actions,
    choose_packing,
    demand_of_plan,
    fits_allocation,
    how_many,
    largest_node_of,
    lead_within,
    size_allocation,
    slurm_headroom,
    unused_keys,
    usual_time_s,
)
from joblens.runners.slurm.site import SlurmSite, terms_for
from joblens.runners.slurm.terms import Options, Terms, all_terms, allocation_options, job_options

_NODES = "${SLURM_JOB_NUM_NODES:-1}"
_LONGEST_NAME = 64  # letters: squeue and mails show names in one line
_LEAST_OF_WORKFLOW = 16  # letters of the workflow's name that stay beside a long name of a job
_CPUS = "${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}"


def batch_script(
    argv: Sequence[str],
    *,
    setup: str = "",
    env: Mapping[str, str] | None = None,
    on_each_node: bool = False,
    time_s: float | None = None,
) -> str:
    """Returns the script. `time_s`: duration of the allocation, because older Slurm versions do not set its
    end for jobs."""
    lines = ["#!/bin/sh"]
    if time_s is not None:
        lines.append(f"export SLURM_JOB_END_TIME=${{SLURM_JOB_END_TIME:-$(($(date +%s) + {int(time_s)}))}}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    if setup.strip():
        lines.append(setup.strip("\n"))
    worker = shlex.join(argv)
    if on_each_node:
        # The worker of a node gets all of its part and divides it; a failed one ends no other.
        lines.append(
            f"exec srun --export=ALL --overlap --nodes={_NODES} --ntasks={_NODES} --ntasks-per-node=1"
            f" --cpus-per-task={_CPUS} --mem=0 --cpu-bind=none --kill-on-bad-exit=0 --input=none {worker}"
        )
    else:
        lines.append(f"exec {worker} </dev/null")
    return "\n".join(lines) + "\n"


def job_name(workflow: str, job: str) -> str:
    """Returns the name of a job in Slurm: `train:fit_3`, without secrets, in one word."""
    first, second = _word(workflow), _word(job)
    if len(first) + len(second) + 1 > _LONGEST_NAME:
        first = first[: max(_LEAST_OF_WORKFLOW, _LONGEST_NAME - 1 - len(second))]
        second = _shortened(second, _LONGEST_NAME - 1 - len(first))
    return ":".join(part for part in (first, second) if part) or "joblens"


def _word(text: str) -> str:
    """Returns the name in one word. Slurm accepts any name; squeue and scripts that parse its output do
    not."""
    safe = (letter if letter.isprintable() and not letter.isspace() else "_" for letter in redact_text(text))
    return "".join(safe)


def _shortened(text: str, length: int) -> str:
    """Keeps the beginning and the end: values of parameters are at the end."""
    if len(text) <= length:
        return text
    end = length // 2
    return f"{text[: length - end - 1]}…{text[-end:]}"


def allocation_name(workflow: str, scheduler: str, run: str = "") -> str:
    """Returns the name of an allocation that jobs share. `run`: distinguishes it from those of other runs."""
    return job_name(workflow, (scheduler or "allocation") + (f".{run}" if run else ""))


def array_name(workflow: str, names: Sequence[str]) -> str:
    """Returns the common beginning of the names of a sweep's jobs; of one job, its name."""
    first, last = min(names), max(names)
    same = next(
        (index for index, letter in enumerate(first) if last[index : index + 1] != letter), len(first)
    )
    shared = first[:same].rstrip("0123456789").rstrip("_-. ") or first
    return job_name(workflow, shared if len(names) > 1 else first)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Returns a key that sorts job_2 before job_10."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name))


ENGINE = "slurm"
_OWN = "~"  # suffix of the queue of jobs with an allocation each: no other worker takes them
_RUN_LETTERS = 8  # of the run's id, in names


class SlurmOrder(Struct, frozen=True):
    """One sbatch."""

    options: Options
    name: str
    uuids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of an array's elements
    queues: tuple[str, ...] = ()  # queues of an allocation that serves them
    most_jobs: int | None = None
    lead_s: float = 0.0  # it is notified this long before its end; 0: it is too short for that
    time_s: float | None = None  # its duration

    @property
    def is_array(self) -> bool:
        return len(self.uuids) > 1

    @property
    def is_on_each_node(self) -> bool:
        return bool(self.queues) and self.options.get("nodes", "1") != "1"


class SlurmOrders:
    """Decides on requests; queries Slurm only about its capacity."""

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        settings: SlurmSettings,
        site: SlurmSite,
        run_uuid: str,
        warn: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._options = options
        self._settings = settings
        self._site = site
        self._run_uuid = run_uuid
        self._warn = warn
        self.headroom = slurm_headroom(plan, settings)
        self._known_terms: dict[str, Terms] | None = None
        self._known_packing: Packing | None = None
        self._demands: dict[str, Demand] = {}
        self._jobs_known = 0  # jobs of the plan at the time of `_demands`
        self._jobs_expected = len(plan.jobs)  # jobs of the plan at the time of `expect`
        self._waited_for_actions: set[str] = set()  # queues
        self._indexes: Collection[int] | None = None
        self._expected_s: Mapping[int, float] = {}

    def expect(self, indexes: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        """Sets the jobs of the plan to run, and their earlier durations. Call it before any request."""
        self._indexes, self._expected_s = indexes, expected_s
        self._jobs_expected = len(self._plan.jobs)
        self._known_packing = None
        self._demands.clear()

    def check_choice(self) -> None:
        """Raises PlanError for options of the command line that have no effect on any request to Slurm. All
        jobs of the plan count: a resumed run has its options from its first driver."""
        choice, jobs = self._options.slurm, self._plan.jobs
        if asked_by_actions(self._plan, choice):
            return
        packing = self._choose_packing(None, {})
        if any(packing.shares(one.spec_job, one.requirements) for one in jobs):
            return
        for name, value in (("--allocations", choice.allocations), ("--nodes", choice.nodes)):
            if value is not None:
                raise PlanError(
                    f"{name} has no effect: no job shares an allocation, all need several nodes of their own",
                    hint=f"leave out {name}",
                )
        if choice.time_s is not None and all(one.requirements.timeout_s is not None for one in jobs):
            raise PlanError(
                "--walltime has no effect: each job has an sbatch of its own, with the time of its runtime",
                hint="choose --packing allocations, or omit --walltime",
            )

    def terms(self) -> dict[str, Terms]:
        if self._known_terms is None:
            self._known_terms, aside = all_terms(self._plan, self._options.slurm, self._settings)
            for text in [*aside, *unused_keys(self._plan, self._options.slurm)]:
                self._warn(text)
        return self._known_terms

    def packing(self) -> Packing:
        if self._known_packing is None:
            self._known_packing = self._choose_packing(self._indexes, self._expected_s)
        return self._known_packing

    def _choose_packing(self, indexes: Collection[int] | None, expected_s: Mapping[int, float]) -> Packing:
        terms = self.terms()
        try:
            largest_nodes = self._site.largest_nodes()
        except PlacingError:
            largest_nodes = []  # it is unavailable for now; sizes are guessed then
        by_scheduler = {name: largest_node_of(one.partition, largest_nodes) for name, one in terms.items()}
        return choose_packing(self._plan, self._options.slurm, by_scheduler, indexes, expected_s)

    # ---- queues ----------------------------------------------------------------------------------------

    def queue_of(self, job: PlannedJob) -> str:
        queue = self._queue(job.scheduler)
        return queue if self.packing().shares(job.spec_job, job.requirements) else queue + _OWN

    def queues_of(self, scheduler: str) -> tuple[str, ...]:
        """Returns the queues that an allocation of it serves. Jobs that name no scheduler may run
        anywhere."""
        return tuple(dict.fromkeys((self._queue(scheduler), self._queue(""))))

    def scheduler_of(self, queue: str) -> str:
        return next((name for name in self.terms() if self._queue(name) == queue), "")

    def _queue(self, scheduler: str) -> str:
        return queue_of_run(ENGINE, self._run_uuid, scheduler)

    # ---- jobs ------------------------------------------------------------------------------------------

    def orders(
        self, requests: Sequence[PlacementRequest], serving: Callable[[str], Options | None]
    ) -> list[SlurmOrder]:
        """`serving`: returns the options of an allocation that serves this queue already."""
        alone: list[PlacementRequest] = []
        shared: dict[str, list[PlacementRequest]] = {}
        for request in sorted(requests, key=lambda one: (-one.priority, one.spec_job, natural(one.name))):
            if request.queue.endswith(_OWN):
                alone.append(request)
            else:
                shared.setdefault(request.queue, []).append(request)
        orders = []
        for queue, some in shared.items():
            orders += self._for_queue(queue, some, alone, serving(queue))
        return [*orders, *self._single_orders(alone)]

    def samples(self, requests: Sequence[PlacementRequest]) -> list[Options]:
        """Returns for each scheduler the options for the first of its jobs that has an allocation of its own,
        and for the allocation that others share."""
        packing = self.packing()
        alone: dict[str, PlacementRequest] = {}
        shared: dict[str, None] = {}
        for request in requests:
            if packing.shares(request.spec_job, request.requirements):
                shared[request.scheduler] = None
            else:
                alone.setdefault(request.scheduler, request)
        return [
            *(self._job_options(scheduler, one.requirements) for scheduler, one in alone.items()),
            *(self.allocation_options(scheduler) for scheduler in shared),
        ]

    def _single_orders(self, requests: Sequence[PlacementRequest]) -> list[SlurmOrder]:
        """Combines jobs of one entry of the file with equal needs into one array."""
        alike: dict[tuple[str, int, Requirements], list[PlacementRequest]] = {}
        for request in requests:
            alike.setdefault((request.scheduler, request.spec_job, request.requirements), []).append(request)
        orders = []
        for (scheduler, _, needs), some in alike.items():
            options = self._job_options(scheduler, needs)
            most = max(1, self._site.most_in_array()) if len(some) > 1 else 1
            for start in range(0, len(some), most):
                part = some[start : start + most]
                name = array_name(self._plan.name, [request.name for request in part])
                uuids = tuple(request.uuid for request in part)
                names = tuple(job_name(self._plan.name, request.name) for request in part)
                order = SlurmOrder(options, name, uuids, names if len(part) > 1 else ())
                orders.append(self._timed(order, scheduler))
        return orders

    def _job_options(self, scheduler: str, needs: Requirements) -> Options:
        terms = terms_for(scheduler, self.terms())
        largest = largest_node_of(terms.partition, self._site.largest_nodes())
        return job_options(terms, needs, self.headroom, largest.time_limit_s if largest is not None else None)

    def _timed(self, order: SlurmOrder, scheduler: str) -> SlurmOrder:
        largest = largest_node_of(terms_for(scheduler, self.terms()).partition, self._site.largest_nodes())
        time_s = usual_time_s(order.options, largest)
        return replace(order, time_s=time_s, lead_s=lead_within(self.headroom.lead_s, time_s))

    # ---- allocations -----------------------------------------------------------------------------------

    def _for_queue(
        self,
        queue: str,
        requests: Sequence[PlacementRequest],
        alone: list[PlacementRequest],
        there: Options | None,
    ) -> list[SlurmOrder]:
        """Returns orders for a queue. Moves jobs that fit into no allocation to `alone`."""
        scheduler = requests[0].scheduler
        options = there if there is not None else self.allocation_options(scheduler)
        too_large = [one for one in requests if not fits_allocation(one.requirements, options, self.headroom)]
        alone += too_large
        if len(too_large) == len(requests) or there is not None or self._is_up_to_actions(queue):
            return []
        return self.allocations(scheduler, self._how_many(scheduler, options))

    def _is_up_to_actions(self, queue: str) -> bool:
        """Returns whether the workflow's actions request the nodes. Jobs that come a second time without any
        have been waiting for an action that does not come: they wait no longer."""
        if not self.packing().has_actions or queue in self._waited_for_actions:
            return False
        self._waited_for_actions.add(queue)
        return True

    @property
    def uses_actions(self) -> bool:
        """Returns whether actions of the workflow request allocations."""
        return self._options.slurm.packing != JOBS

    def action_allocations(self, spec: ActionSpec) -> list[SlurmOrder]:
        """Returns allocations that an action schedules at Slurm."""
        count = self._options.slurm.allocations or spec.num_allocations or 1
        return self.allocations(spec.scheduler or "", count, spec.max_parallel_jobs)

    def mark_requested(self, queues: Sequence[str]) -> None:
        """Notes that an action has requested nodes for these queues."""
        self._waited_for_actions.update(queues)

    def allocation_options(self, scheduler: str) -> Options:
        terms = terms_for(scheduler, self.terms())
        demand = self._demand(scheduler)
        largest = largest_node_of(terms.partition, self._site.largest_nodes())
        most_cpus = None if self._options.cpus is None else int(self._options.cpus)
        return allocation_options(terms, size_allocation(terms, demand, largest, self.headroom, most_cpus))

    def _how_many(self, scheduler: str, options: Options) -> int:
        if self._options.slurm.allocations is not None:
            return self._options.slurm.allocations
        if terms_for(scheduler, self.terms()).is_serial:
            return 1
        cpus = options.get("cpus-per-task", "1")
        each = int(cpus) * int(options.get("nodes", "1")) if cpus.isdecimal() else 1
        return how_many(self._demand(scheduler), each)

    def _demand(self, scheduler: str) -> Demand:
        """Returns the demand, cached: the plan may be large, and changes only when jobs are added."""
        if self._jobs_known != len(self._plan.jobs):
            self._jobs_known = len(self._plan.jobs)
            self._demands.clear()
        if scheduler not in self._demands:
            self._demands[scheduler] = demand_of_plan(
                self._plan, self.packing(), scheduler, self._indexes_now(), self._expected_s
            )
        return self._demands[scheduler]

    def _indexes_now(self) -> Collection[int]:
        """Returns the jobs to run, with those that were added since, without those for workers with a
        label."""
        count = len(self._plan.jobs)
        expected = range(self._jobs_expected) if self._indexes is None else self._indexes
        indexes = {*expected, *range(self._jobs_expected, count)}
        return indexes - jobs_elsewhere(self._plan, self._options.labels)

    def allocations(self, scheduler: str, count: int, most_jobs: int | None = None) -> list[SlurmOrder]:
        name = allocation_name(self._plan.name, scheduler)
        options = self.allocation_options(scheduler)
        if terms_for(scheduler, self.terms()).is_serial:
            options = {**options, "dependency": "singleton"}
            name = allocation_name(self._plan.name, scheduler, self._run_uuid[:_RUN_LETTERS])
        queues = self.queues_of(scheduler)
        order = SlurmOrder(options, name, queues=queues, most_jobs=most_jobs)
        return [self._timed(order, scheduler)] * count
