"""Slurm backend: Slurm as the cluster of a run (`ports.cluster`): sbatch, arrays, shared allocations, local
workers."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from joblens.model.clusters.placement import (
    AllocationEvent,
    AllocationState,
    ClusterPreview,
    NodeCapacity,
    Placed,
    PlacementRequest,
    PlannedRequest,
    PreviewStep,
    WorkerConfig,
)
from joblens.model.errors import PlacingError, PlanError
from joblens.model.jobs.job import Placement
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.ports.workers import WorkerConfigWriter
from joblens.runners.slurm.allocations import (
    IdleAllocations,
    LiveAllocation,
    SlurmAllocations,
    is_mistake,
    is_permanent,
)
from joblens.runners.slurm.commands import SlurmCommands, sbatch_argv
from joblens.runners.slurm.dry_run import JOB_ID, Draft, SlurmDrafts, capacity_of, planned_request
from joblens.runners.slurm.orders import ENGINE, SlurmOrder, SlurmOrders, batch_script
from joblens.runners.slurm.packing import asked_by_actions, worker_env
from joblens.runners.slurm.site import SlurmSite
from joblens.runners.slurm.terms import CHECKED_WORDS, Options, as_arguments, memory_asked

_PREFIX = "here-"


class WorkersHere:
    def __init__(self, config_files: WorkerConfigWriter) -> None:
        self._config_files = config_files
        self._started: dict[
            str, tuple[subprocess.Popen[bytes], str]
        ] = {}  # with the path of its configuration
        self._followed: dict[str, int] = {}  # of an earlier driver
        self._queues: dict[str, tuple[str, ...]] = {}  # that they serve

    def start(self, config: WorkerConfig) -> Placed:
        placement = Placement(engine="slurm", is_allocation=True, nodes=(os.uname().nodename,))
        path = self._config_files.write(replace(config, placement=placement))
        try:
            process = subprocess.Popen(
                self._config_files.argv(path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            self._config_files.drop(path)
            raise PlacingError(f"a worker cannot be started here: {error}") from error
        job_id = f"{_PREFIX}{process.pid}"
        placed = Placed(placement=replace(placement, job_id=job_id), queue=config.queues[0])
        self._started[job_id] = (process, path)
        self._queues[job_id] = config.queues
        return placed

    def follow(self, placed: Placed, queues: tuple[str, ...]) -> bool:
        """Returns whether it was one of these."""
        job_id = placed.placement.job_id
        if not job_id.startswith(_PREFIX):
            return False
        self._followed[job_id] = int(job_id.removeprefix(_PREFIX))
        self._queues[job_id] = queues
        return True

    def serves(self, queue: str) -> bool:
        return any(queue in queues for queues in self._queues.values())

    def poll(self) -> list[AllocationEvent]:
        news = []
        for job_id, (process, path) in list(self._started.items()):
            code = process.poll()
            if code is None:
                continue
            del self._started[job_id], self._queues[job_id]
            state = AllocationState.ENDED if code == 0 else AllocationState.GONE
            reason = self._config_files.last_words(path) if code else ""
            news.append(AllocationEvent(job_id=job_id, state=state, word=f"exit code {code}", reason=reason))
            self._config_files.drop(path)
        for job_id, pid in list(self._followed.items()):
            if not os.path.exists(f"/proc/{pid}"):
                del self._followed[job_id], self._queues[job_id]
                # Its way of ending is unknown here: its leases show it.
                news.append(AllocationEvent(job_id=job_id, state=AllocationState.ENDED, word="left"))
        return news

    def end(self) -> None:
        """Ends only workers started here: the pid of another may have been reused."""
        for process, _ in self._started.values():
            process.send_signal(signal.SIGTERM)


_LEAST_RESERVE_S = 10.0
_LONGEST_WORDS = 600
_READ_OF_OUTPUT = 1 << 16


class SlurmBackend:
    """Implements ports.cluster.ClusterBackend and its QueueAllocations."""

    engine = ENGINE

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        settings: Settings,
        config_files: WorkerConfigWriter,
        warn: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._options = options
        self._settings = settings.slurm
        self._config_files = config_files
        self._commands = SlurmCommands()
        self._site = SlurmSite(self._commands)
        self._allocations = SlurmAllocations(self._commands, settings.slurm.poll)
        self._here = WorkersHere(config_files)
        self._orders = SlurmOrders(
            plan, options, settings.slurm, self._site, config_files.config.run_uuid, warn
        )
        self._to_withdraw: set[str] = set()
        self._idle = IdleAllocations()
        self._busy: Collection[str] = ()  # queues
        self._most_jobs: dict[str, int | None] = {}  # at a time, in each allocation that serves the queue

    def check(self, requests: Sequence[PlacementRequest]) -> None:
        self._site.check(
            requests,
            self._orders.terms(),
            self._orders.headroom,
            asked_by_actions(self._plan, self._options.slurm),
        )
        self._orders.check_choice()
        for options in self._orders.samples(requests):
            self._check_options(options)

    def _check_options(self, options: Options) -> None:
        """Checks options that are known to sbatch alone."""
        if not options.keys() - CHECKED_WORDS:
            return
        words = as_arguments(options)
        try:
            self._commands.test_sbatch(words)
        except PlacingError as error:
            if is_mistake(str(error)):
                raise PlanError(f"{error} (it was given {' '.join(words)})") from error

    @property
    def allocations(self) -> "SlurmBackend":
        return self

    def expect(self, jobs: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        self._orders.expect(jobs, expected_s)

    def queue_of(self, job: PlannedJob) -> str:
        return self._orders.queue_of(job)

    # ---- dry runs --------------------------------------------------------------------------------------

    def preview(self, steps: Sequence[PreviewStep]) -> ClusterPreview:
        drafts = SlurmDrafts(self._plan, self._orders)
        for step in steps:
            drafts.add(step)
        cluster = self._site.cluster()
        return ClusterPreview(
            engine=self.engine,
            where=f"Slurm cluster {cluster}" if cluster else "Slurm",
            capacity=capacity_of(self._site.largest_nodes()),
            requests=tuple(self._planned(draft) for draft in drafts.drafts),
        )

    def _planned(self, draft: Draft) -> PlannedRequest:
        order = draft.order
        # Ids of jobs are made with the run: the line has a placeholder.
        without_ids = replace(order, uuids=(JOB_ID,) * len(order.uuids))
        config_path = os.path.join(self._config_files.folder, "WORKER.json")
        argv = sbatch_argv(self._arguments(without_ids))
        return planned_request(draft, argv, self._script(without_ids, config_path))

    # ---- placing ---------------------------------------------------------------------------------------

    def place(self, requests: Sequence[PlacementRequest]) -> list[Placed]:
        return self._submit_all(self._orders.orders(requests, self._asked_for))

    def _asked_for(self, queue: str) -> Options | None:
        serving = self._allocations.serving(queue)
        if serving:
            return serving[0].asked
        return {} if self._here.serves(queue) else None

    def ask_for_nodes(self, action: int) -> list[Placed]:
        spec = self._plan.actions[action].spec
        queues = self._orders.queues_of(spec.scheduler or "")
        if not self._orders.uses_actions:
            return []  # reported before the run
        self._orders.mark_requested(queues)
        if not spec.persistent and self._has_followed(queues[0]):
            return []  # an earlier driver of the run requested it, and it exists
        if spec.scheduler_type == "local":
            config = replace(
                self._config_files.config,
                queues=queues,
                idle_s=self._idle_s(),
                most_jobs=spec.max_parallel_jobs,
            )
            return [self._here.start(config) for _ in range(spec.num_allocations or 1)]
        return self._submit_all(self._orders.action_allocations(spec))

    def more_allocations(self, queue: str, count: int) -> list[Placed]:
        scheduler = self._orders.scheduler_of(queue)
        return self._submit_all(self._orders.allocations(scheduler, count, self._most_jobs.get(queue)))

    def _has_followed(self, queue: str) -> bool:
        return any(not allocation.config_path for allocation in self._allocations.serving(queue))

    def _submit_all(self, orders: Sequence[SlurmOrder]) -> list[Placed]:
        """Submits orders. After the first failure, the remaining ones are left to the next call."""
        placed: list[Placed] = []
        self._most_jobs.update((order.queues[0], order.most_jobs) for order in orders if order.queues)
        try:
            for order in orders:
                placed += self._submit(order)
        except (PlacingError, PlanError):
            if not placed:
                raise
        return placed

    def _idle_s(self) -> float:
        written = self._plan.other.get("compute_node_wait_for_new_jobs_seconds")
        return float(written) if written is not None else self._settings.idle

    # ---- sbatch ----------------------------------------------------------------------------------------

    def _submit(self, order: SlurmOrder) -> list[Placed]:
        placement = Placement(
            engine=self.engine,
            cluster=self._site.cluster(),
            partition=order.options.get("partition", ""),
            account=order.options.get("account", ""),
            qos=order.options.get("qos", ""),
            is_allocation=bool(order.queues),
            asked=dict(order.options),
        )
        config_path = self._write_config(order, placement)
        try:
            job_id = self._commands.sbatch(self._arguments(order), self._script(order, config_path))
        except PlacingError as error:
            self._config_files.drop(config_path)
            if is_permanent(str(error)):
                words = " ".join(as_arguments(order.options))
                raise PlanError(f"{error} (it was given {words})") from error
            raise
        return self._remember(order, job_id, placement, config_path)

    def _write_config(self, order: SlurmOrder, placement: Placement) -> str:
        buffer_s = self._plan.other.get("compute_node_expiration_buffer_seconds")
        memory = memory_asked(order.options) if order.queues else None
        return self._config_files.write(
            replace(
                self._config_files.config,
                queues=order.queues,
                tickets=order.uuids,
                is_array=order.is_array,
                names=order.names,
                # Its own part of an allocation is not for jobs.
                memory_bytes=max(0, memory - self._settings.agent_memory) if memory is not None else None,
                most_jobs=order.most_jobs,
                idle_s=self._idle_s() if order.queues else 0.0,
                reserve_s=float(buffer_s) if buffer_s is not None else order.lead_s or _LEAST_RESERVE_S,
                placement=placement,
                walltime_s=order.time_s,
            )
        )

    def _arguments(self, order: SlurmOrder) -> list[str]:
        run, folder, of_job = self._config_files.config.run_uuid, self._config_files.folder, ""
        if len(order.uuids) == 1:
            of_job = f" job={order.uuids[0]}"
        words = [
            *as_arguments(order.options),
            f"--job-name={order.name}",
            f"--comment=joblens run={run}{of_job}",
            f"--output={os.path.join(folder, '%A_%a.out' if order.is_array else '%j.out')}",
            "--no-requeue",  # lost jobs are resubmitted, by joblens only
            "--chdir=/",  # jobs have their own directories
        ]
        if order.lead_s:
            # The script becomes the worker; workers on each node are steps, which get it without 'B:'.
            words.append(
                f"--signal={'' if order.is_on_each_node else 'B:'}TERM@{max(1, round(order.lead_s))}"
            )
        if order.is_array:
            throttle = f"%{self._settings.array_at_once}" if self._settings.array_at_once else ""
            words.append(f"--array=0-{len(order.uuids) - 1}{throttle}")
        return words

    def _script(self, order: SlurmOrder, config_path: str) -> str:
        argv = self._config_files.argv(config_path)
        if self._settings.python:
            argv[0] = self._settings.python
        return batch_script(
            argv,
            setup=self._settings.setup or "",
            env=worker_env(self._plan.execution),
            on_each_node=order.is_on_each_node,
            time_s=order.time_s,
        )

    def _remember(
        self, order: SlurmOrder, job_id: str, placement: Placement, config_path: str
    ) -> list[Placed]:
        ids: list[tuple[str, tuple[str, ...]]] = [(job_id, order.uuids)]
        if order.is_array:
            ids = [(f"{job_id}_{index}", (uuid,)) for index, uuid in enumerate(order.uuids)]
        placed = []
        for each, uuids in ids:
            one = Placed(
                placement=replace(placement, job_id=each),
                uuids=uuids,
                queue=order.queues[0] if order.queues else "",
            )
            self._allocations.add(
                LiveAllocation(one, config_path, self._output_of(each), order.queues, dict(order.options))
            )
            placed.append(one)
        return placed

    def _output_of(self, job_id: str) -> str:
        return os.path.join(self._config_files.folder, f"{job_id}.out")

    # ---- what came of it -------------------------------------------------------------------------------

    def follow(self, placed: Sequence[Placed]) -> None:
        for one in placed:
            queues = (one.queue, self._orders.queues_of("")[0]) if one.placement.is_allocation else ()
            if self._here.follow(one, queues):
                continue
            output = self._output_of(one.placement.job_id)
            self._allocations.add(LiveAllocation(one, "", output, queues, dict(one.placement.asked)))

    def withdraw(self, uuids: Sequence[str]) -> None:
        """Adds jobs to the next poll: scancel costs as much for one as for many."""
        self._to_withdraw |= set(uuids)

    def poll(self) -> list[AllocationEvent]:
        self._cancel_withdrawn()
        news = self._here.poll()
        for one, allocation in self._allocations.poll():
            if one.state in (AllocationState.ENDED, AllocationState.GONE):
                news.append(self._with_reason(one, allocation))
                self._allocations.remove(one.job_id)
                self._drop_config(allocation)
            else:
                news.append(one)
        self._signal_workers(
            self._idle.ending_now(self._allocations.live, self._busy, self._allocations.now_s())
        )
        return news

    def are_busy(self, queues: Collection[str]) -> None:
        self._busy = queues

    def _cancel_withdrawn(self) -> None:
        if not self._to_withdraw:
            return
        uuids, self._to_withdraw = self._to_withdraw, set()
        live = self._allocations.live
        ids = [one for one in self._allocations.only_for(uuids) if live[one].state is AllocationState.WAITING]
        if ids:
            self._commands.scancel(ids, only_waiting=True)

    def _with_reason(self, news: AllocationEvent, allocation: LiveAllocation) -> AllocationEvent:
        """Adds the worker's message, which explains more than its exit code."""
        if news.state is not AllocationState.GONE:
            return news
        words = self._config_files.last_words(allocation.config_path) if allocation.config_path else ""
        return replace(news, reason=words or _last_line(allocation.output) or news.reason)

    def _drop_config(self, allocation: LiveAllocation) -> None:
        """Removes a configuration file after the last element of its array."""
        if allocation.config_path and not any(
            one.config_path == allocation.config_path for one in self._allocations.live.values()
        ):
            self._config_files.drop(allocation.config_path)
        if allocation.state is AllocationState.ENDED:
            with contextlib.suppress(OSError):
                os.unlink(allocation.output)

    def capacity(self) -> NodeCapacity | None:
        return None

    def close(self, *, is_over: bool) -> None:
        """Ends all allocations of the run, except workers of single jobs: they end with their job."""
        if not is_over:
            return
        self._here.end()
        live = self._allocations.live
        waiting = [
            job_id for job_id, allocation in live.items() if allocation.state is AllocationState.WAITING
        ]
        if waiting:
            self._commands.scancel(waiting, only_waiting=True)
        self._signal_workers([job_id for job_id, allocation in live.items() if allocation.is_allocation])

    def _signal_workers(self, allocations: Sequence[str]) -> None:
        """Signals their workers, which then exit by themselves: their jobs are not cancelled."""
        for is_spread in (False, True):
            some = [
                job_id
                for job_id in allocations
                if (self._allocations.live[job_id].asked.get("nodes", "1") != "1") is is_spread
            ]
            if some:
                self._commands.scancel(some, signal="TERM", only_steps=is_spread)


def _last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file.read(_READ_OF_OUTPUT).splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][-_LONGEST_WORDS:] if lines else ""
