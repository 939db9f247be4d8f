"""What is asked of Slurm for the jobs of a run: an sbatch for each, arrays for sweeps, allocations for those
that share them."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.placing import PlacementRequest, queue_of_run
from joblens.model.errors import PlacingError, PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import RunOptions
from joblens.model.runs.workflow_spec import ActionSpec
from joblens.model.settings import SlurmSettings
from joblens.plan.slurm.packing import (
    JOBS,
    Demand,
    Packing,
    choose_packing,
    fits_allocation,
    how_many,
    lead_within,
    room_of,
    size_allocation,
    usual_time_s,
)
from joblens.plan.slurm.sbatch_words import Options
from joblens.plan.slurm.script import allocation_name, array_name, job_name, natural
from joblens.plan.slurm.terms import Terms, all_terms, allocation_options, job_options
from joblens.plan.slurm.width import demand_of_plan
from joblens.plan.workflows.labelled_jobs import jobs_elsewhere
from joblens.plan.workflows.slurm_keys import asked_by_actions, slurm_headroom, unused_keys
from joblens.runners.slurm.site import SlurmSite, terms_for

ENGINE = "slurm"
_OWN = "~"  # behind the queue of jobs that get a place each: allocations leave them alone
_RUN_LETTERS = 8  # of the run's id, in names


class SlurmOrder(Struct, frozen=True):
    """One sbatch."""

    options: Options
    name: str
    uuids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of an array's elements
    queues: tuple[str, ...] = ()  # an allocation that serves them
    most_jobs: int | None = None
    lead_s: float = 0.0  # before its end it is told; 0: it is too short for that
    time_s: float | None = None  # it lasts

    @property
    def is_array(self) -> bool:
        return len(self.uuids) > 1

    @property
    def is_on_each_node(self) -> bool:
        return bool(self.queues) and self.options.get("nodes", "1") != "1"


class SlurmOrders:
    """Decides; asks Slurm only what it has."""

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
        self._jobs_known = 0  # of the plan, when they were worked out
        self._jobs_expected = len(plan.jobs)  # of the plan, when it was said which are to run
        self._waited_for_actions: set[str] = set()  # queues
        self._places: Collection[int] | None = None
        self._expected_s: Mapping[int, float] = {}

    def expect(self, places: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        """Before anything is asked: which jobs of the plan are to run, and how long they took before."""
        self._places, self._expected_s = places, expected_s
        self._jobs_expected = len(self._plan.jobs)
        self._known_packing = None
        self._demands.clear()

    def check_choice(self) -> None:
        """Raises PlanError for options of the command line that no request to Slurm would show. All jobs of
        the plan count: a run that is resumed has its options from the first time."""
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
                hint="choose --packing allocations, or leave out --walltime",
            )

    def terms(self) -> dict[str, Terms]:
        if self._known_terms is None:
            self._known_terms, aside = all_terms(self._plan, self._options.slurm, self._settings)
            for text in [*aside, *unused_keys(self._plan, self._options.slurm)]:
                self._warn(text)
        return self._known_terms

    def packing(self) -> Packing:
        if self._known_packing is None:
            self._known_packing = self._choose_packing(self._places, self._expected_s)
        return self._known_packing

    def _choose_packing(self, places: Collection[int] | None, expected_s: Mapping[int, float]) -> Packing:
        terms = self.terms()
        try:
            rooms = self._site.rooms()
        except PlacingError:
            rooms = []  # it is away for now; what suits is guessed then
        by_scheduler = {name: room_of(one.partition, rooms) for name, one in terms.items()}
        return choose_packing(self._plan, self._options.slurm, by_scheduler, places, expected_s)

    # ---- queues ----------------------------------------------------------------------------------------

    def queue_of(self, job: PlannedJob) -> str:
        queue = self._queue(job.scheduler)
        return queue if self.packing().shares(job.spec_job, job.requirements) else queue + _OWN

    def queues_of(self, scheduler: str) -> tuple[str, ...]:
        """That an allocation of it serves. Jobs that name no scheduler may run anywhere."""
        return tuple(dict.fromkeys((self._queue(scheduler), self._queue(""))))

    def scheduler_of(self, queue: str) -> str:
        return next((name for name in self.terms() if self._queue(name) == queue), "")

    def _queue(self, scheduler: str) -> str:
        return queue_of_run(ENGINE, self._run_uuid, scheduler)

    # ---- jobs ------------------------------------------------------------------------------------------

    def orders(
        self, parcels: Sequence[PlacementRequest], serving: Callable[[str], Options | None]
    ) -> list[SlurmOrder]:
        """`serving`: what was asked for an allocation that serves this queue already."""
        alone: list[PlacementRequest] = []
        shared: dict[str, list[PlacementRequest]] = {}
        for parcel in sorted(parcels, key=lambda one: (-one.priority, one.spec_job, natural(one.name))):
            if parcel.queue.endswith(_OWN):
                alone.append(parcel)
            else:
                shared.setdefault(parcel.queue, []).append(parcel)
        orders = []
        for queue, some in shared.items():
            orders += self._for_queue(queue, some, alone, serving(queue))
        return [*orders, *self._of_their_own(alone)]

    def samples(self, parcels: Sequence[PlacementRequest]) -> list[Options]:
        """Returns for each scheduler the options for the first of its jobs that has an allocation of its own,
        and for the allocation that others share."""
        packing = self.packing()
        alone: dict[str, PlacementRequest] = {}
        shared: dict[str, None] = {}
        for parcel in parcels:
            if packing.shares(parcel.spec_job, parcel.requirements):
                shared[parcel.scheduler] = None
            else:
                alone.setdefault(parcel.scheduler, parcel)
        return [
            *(self._job_options(scheduler, one.requirements) for scheduler, one in alone.items()),
            *(self.allocation_options(scheduler) for scheduler in shared),
        ]

    def _of_their_own(self, parcels: Sequence[PlacementRequest]) -> list[SlurmOrder]:
        """Those of one entry of the file that need the same go into one array."""
        alike: dict[tuple[str, int, Requirements], list[PlacementRequest]] = {}
        for parcel in parcels:
            alike.setdefault((parcel.scheduler, parcel.spec_job, parcel.requirements), []).append(parcel)
        orders = []
        for (scheduler, _, needs), some in alike.items():
            options = self._job_options(scheduler, needs)
            most = max(1, self._site.most_in_array()) if len(some) > 1 else 1
            for start in range(0, len(some), most):
                part = some[start : start + most]
                name = array_name(self._plan.name, [parcel.name for parcel in part])
                uuids = tuple(parcel.uuid for parcel in part)
                names = tuple(job_name(self._plan.name, parcel.name) for parcel in part)
                order = SlurmOrder(options, name, uuids, names if len(part) > 1 else ())
                orders.append(self._timed(order, scheduler))
        return orders

    def _job_options(self, scheduler: str, needs: Requirements) -> Options:
        terms = terms_for(scheduler, self.terms())
        room = room_of(terms.partition, self._site.rooms())
        return job_options(terms, needs, self.headroom, room.time_limit_s if room is not None else None)

    def _timed(self, order: SlurmOrder, scheduler: str) -> SlurmOrder:
        room = room_of(terms_for(scheduler, self.terms()).partition, self._site.rooms())
        time_s = usual_time_s(order.options, room)
        return replace(order, time_s=time_s, lead_s=lead_within(self.headroom.lead_s, time_s))

    # ---- allocations -----------------------------------------------------------------------------------

    def _for_queue(
        self,
        queue: str,
        parcels: Sequence[PlacementRequest],
        alone: list[PlacementRequest],
        there: Options | None,
    ) -> list[SlurmOrder]:
        """Those that do not fit into what is there, or would be asked for, go to `alone`."""
        scheduler = parcels[0].scheduler
        options = there if there is not None else self.allocation_options(scheduler)
        too_large = [one for one in parcels if not fits_allocation(one.requirements, options, self.headroom)]
        alone += too_large
        if len(too_large) == len(parcels) or there is not None or self._is_up_to_actions(queue):
            return []
        return self.allocations(scheduler, self._how_many(scheduler, options))

    def _is_up_to_actions(self, queue: str) -> bool:
        """The workflow's actions ask for nodes. Jobs that come a second time without any have been waiting
        for an action that does not come: they wait no longer."""
        if not self.packing().has_actions or queue in self._waited_for_actions:
            return False
        self._waited_for_actions.add(queue)
        return True

    @property
    def uses_actions(self) -> bool:
        """Whether actions of the workflow ask for allocations."""
        return self._options.slurm.packing != JOBS

    def of_action(self, spec: ActionSpec) -> list[SlurmOrder]:
        """Allocations that an action schedules at Slurm."""
        count = self._options.slurm.allocations or spec.num_allocations or 1
        return self.allocations(spec.scheduler or "", count, spec.max_parallel_jobs)

    def has_asked(self, queues: Sequence[str]) -> None:
        """An action did."""
        self._waited_for_actions.update(queues)

    def allocation_options(self, scheduler: str) -> Options:
        terms = terms_for(scheduler, self.terms())
        demand = self._demand(scheduler)
        room = room_of(terms.partition, self._site.rooms())
        most_cpus = None if self._options.cpus is None else int(self._options.cpus)
        return allocation_options(terms, size_allocation(terms, demand, room, self.headroom, most_cpus))

    def _how_many(self, scheduler: str, options: Options) -> int:
        if self._options.slurm.allocations is not None:
            return self._options.slurm.allocations
        if terms_for(scheduler, self.terms()).is_serial:
            return 1
        cpus = options.get("cpus-per-task", "1")
        each = int(cpus) * int(options.get("nodes", "1")) if cpus.isdecimal() else 1
        return how_many(self._demand(scheduler), each)

    def _demand(self, scheduler: str) -> Demand:
        """The plan may be large, and changes only when jobs are added."""
        if self._jobs_known != len(self._plan.jobs):
            self._jobs_known = len(self._plan.jobs)
            self._demands.clear()
        if scheduler not in self._demands:
            self._demands[scheduler] = demand_of_plan(
                self._plan, self.packing(), scheduler, self._places_now(), self._expected_s
            )
        return self._demands[scheduler]

    def _places_now(self) -> Collection[int]:
        """With jobs that were added since, but for those that workers with a label run."""
        count = len(self._plan.jobs)
        expected = range(self._jobs_expected) if self._places is None else self._places
        places = {*expected, *range(self._jobs_expected, count)}
        return places - jobs_elsewhere(self._plan, self._options.labels)

    def allocations(self, scheduler: str, count: int, most_jobs: int | None = None) -> list[SlurmOrder]:
        name = allocation_name(self._plan.name, scheduler)
        options = self.allocation_options(scheduler)
        if terms_for(scheduler, self.terms()).is_serial:
            options = {**options, "dependency": "singleton"}
            name = allocation_name(self._plan.name, scheduler, self._run_uuid[:_RUN_LETTERS])
        queues = self.queues_of(scheduler)
        order = SlurmOrder(options, name, queues=queues, most_jobs=most_jobs)
        return [self._timed(order, scheduler)] * count
