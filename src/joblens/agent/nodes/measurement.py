"""Node measurement: measures the part of a job that runs on this node, another one than that of its command.
joblens does not start its tasks: they are announced (`agent.nodes.protocol`) and moved into a group, or
followed if that is impossible."""

import os
import threading

from joblens.agent.instruments.table import NO_INSTRUMENTS, Instruments, Watched
from joblens.agent.measuring.accounting import PROCESS_TREE, Accountant, kill_each, limit
from joblens.agent.measuring.meter import CALM_S, CLOSE_S, JobMeter, LimitWatch
from joblens.agent.measuring.outcome import origins_of, origins_so_far
from joblens.agent.nodes.protocol import NodeOrder, join_or_follow
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.analysis.numbers.usage import total_usage
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import ProbeError
from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import NOTHING_REAPED, Job, Requirements
from joblens.ports.clock import Clock
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import HostProbe
from joblens.probes.proc.processes import ProcessesProbe
from joblens.probes.proc.several_trees import SeveralTrees


class NodeMeasurement:
    """`take` is called on the door's thread, everything else on one other."""

    def __init__(self, order: NodeOrder, node: str, clock: Clock, accountant: Accountant) -> None:
        self._node = node
        self._clock = clock
        self._lock = threading.Lock()
        job = _partial_job(order)
        self._groups = accountant.groups_for_process(job.uuid, job.accounting, None)
        limits = limit(job, self._groups)
        self._watch = LimitWatch(limits.watched_memory_bytes, limits.watched_pids)
        main = CgroupProbe(self._groups.paths, self._groups.kind) if self._groups else None
        self._trees = SeveralTrees(main)
        self._instruments = Instruments()
        watched = Watched(
            job=job,
            main_pid=None,
            kind=self._groups.kind if self._groups else "",
            groups=self._groups.paths if self._groups else {},
            pids=self.pids,
            has_new_processes=True,
        )
        opened = self._instruments.open(watched, excluded=_EXCLUDED) if self._groups else NO_INSTRUMENTS
        self._opened = opened
        self._meter = JobMeter(
            self._trees,
            ProcessesProbe(self.pids) if self._groups else None,
            HostProbe(),
            clock,
            probe_counts_reaped=True,
            others=opened.probes,
        )
        self._summary = RunningSummary()
        self._meter.take_base()
        self._meter.start_at(clock.mono_ns())
        self._interval_s = order.interval_s

    @property
    def accounting(self) -> str:
        return self._groups.kind if self._groups is not None else PROCESS_TREE

    def take(self, pid: int) -> str:
        return join_or_follow(pid, self._groups, self._trees)

    def pids(self) -> list[int]:
        return [*(self._groups.pids() if self._groups else ()), *self._trees.followed()]

    @property
    def pause_s(self) -> float:
        """Time until the next reading. Processes that cannot be waited for are polled often."""
        if self._watch or self._trees.is_following:
            return CLOSE_S if self._trees.is_following else min(CALM_S, self._watch.interval_s)
        return self._interval_s

    def poll(self) -> EndCause | None:
        """Takes a sample. Returns the limit that was exceeded, if any."""
        try:
            sample = self._meter.sample(NOTHING_REAPED)
        except ProbeError:
            return None
        self._summary.add(sample)
        return self._watch.judge(sample) if self._watch else None

    def part(self, ranks: set[int], taken: int, errors: list[str], *, final: bool = False) -> NodePart:
        if final:
            try:
                self._summary.add(self._meter.sample(NOTHING_REAPED, final=True))
            except ProbeError as error:
                errors = [*errors, str(error)]
        origins = origins_of(self._meter) if final else origins_so_far(self._meter)
        usage = total_usage(
            self._summary.samples,
            None,
            accounting=self.accounting,
            sources=origins.sources,
            unknown=origins.unknown,
            lower_bounds=origins.lower_bounds,
            has_end=origins.has_end,
        )
        return NodePart(
            node=self._node,
            usage=usage,
            processes=taken,
            tasks=tuple(sorted(ranks)),
            accounting=self.accounting,
            error="; ".join(dict.fromkeys(errors)),
        )

    def kill(self) -> None:
        if self._groups is not None:
            self._groups.kill()
        kill_each(self._trees.followed)

    def close(self) -> None:
        self._meter.close()
        self._opened.close()
        self._instruments.close()
        if self._groups is not None:
            self._groups.remove()


# Probes of single devices or processes, which need a job with an owner: the first node has their numbers.
_EXCLUDED = ("gpu", "endpoints", "threads", "memory")


def _partial_job(order: NodeOrder) -> Job:
    """Returns the job with the fields that matter on another node."""
    limits = Requirements(cpus=order.cpus, memory_bytes=order.memory_bytes, pids=order.pids)
    return Job(
        uuid=order.uuid,
        argv=("",),
        created_at_us=0,
        requirements=limits,
        accounting=order.accounting,
        interval_s=order.interval_s,
        probes=order.probes,
        user=str(os.geteuid()),
    )
