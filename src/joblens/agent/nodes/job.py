"""Multi-node job: its head passes the nodes to the command, runs an agent on each of them, and adds up their
usage."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.measuring.accounting import PROCESS_TREE
from joblens.agent.measuring.meter import JobMeter
from joblens.agent.nodes.protocol import (
    END,
    FOLLOWED,
    KILL,
    NodeOrder,
    NodeReport,
    ReportReader,
    TaskDoor,
    join_or_follow,
    write_prolog,
)
from joblens.agent.runtime.loop import mono_s
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.details import Details, NodePart, NodeTable
from joblens.model.jobs.job import USAGE_NUMBERS, Job, Outcome, Status, Usage
from joblens.ports.clock import Clock
from joblens.ports.cluster import NodeAgents, NodeProcesses
from joblens.probes.proc.several_trees import SeveralTrees

# A request applies to each node: the node that needed the most counts.
_LARGEST_NODE_NUMBERS = frozenset(
    {
        "memory_peak_bytes",
        "memory_kernel_peak_bytes",
        "memory_largest_process_bytes",
        "memory_mean_bytes",
        "memory_file_peak_bytes",
        "cpu_pressure_usec",
        "memory_pressure_usec",
        "io_pressure_usec",
    }
)
_PEAK = "memory_peak"
# Known of a process only when it is waited for, unless its group counts them.
_REAPED_NUMBERS = (
    "memory_largest_process_bytes",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "context_switches_voluntary",
    "context_switches_involuntary",
)
_BYTES = ("io_read_bytes", "io_write_bytes")


def with_lower_bounds(usage: Usage) -> Usage:
    """Returns the usage of a node where the cluster's own daemon has waited for some of its processes."""
    missed = _REAPED_NUMBERS if usage.io_read_ops is not None else (*_REAPED_NUMBERS, *_BYTES)
    lower = {*usage.lower_bounds, *(name for name in missed if getattr(usage, name) is not None)}
    return replace(usage, lower_bounds=tuple(name for name in USAGE_NUMBERS if name in lower))


def merge_usage(first: Usage, others: Sequence[NodePart]) -> Usage:
    """Returns the sum over all nodes, but the memory of the largest node. `first`: of the node where its
    command ran. A number that is unknown on some node is a lower bound."""
    # A node without any process of the job has nothing to report.
    usages = [first, *(part.usage for part in others if part.processes != 0 or part.error)]
    are_all_known = all(not part.error for part in others)
    numbers: dict[str, int] = {}
    lower: set[str] = set()
    for name in USAGE_NUMBERS:
        known = [value for usage in usages if (value := getattr(usage, name)) is not None]
        if not known:
            continue
        numbers[name] = max(known) if name in _LARGEST_NODE_NUMBERS else sum(known)
        is_complete = are_all_known and len(known) == len(usages)
        if not is_complete or any(name in usage.lower_bounds for usage in usages):
            lower.add(name)
    sources: dict[str, str] = {}
    for usage in reversed(usages):
        sources |= usage.sources
    return replace(
        first,
        **numbers,
        sources=_merged_sources(sources, first, others),
        unknown={name: why for name, why in first.unknown.items() if name not in numbers},
        lower_bounds=tuple(name for name in USAGE_NUMBERS if name in lower),
        estimates=tuple(
            name
            for name in USAGE_NUMBERS
            if name not in lower and any(name in usage.estimates for usage in usages)
        ),
    )


def _merged_sources(sources: dict[str, str], first: Usage, others: Sequence[NodePart]) -> dict[str, str]:
    count = 1 + len(others)
    shown = {group: f"{source}; {count} nodes" for group, source in sources.items()}
    if _PEAK in sources:
        largest = max(others, key=lambda part: part.usage.memory_peak_bytes or 0)
        is_first = (first.memory_peak_bytes or 0) >= (largest.usage.memory_peak_bytes or 0)
        where = "the first node" if is_first else largest.node
        shown[_PEAK] = f"{sources[_PEAK]}; of the node that needed the most, {where}, of {count}"
    return shown


_READY_S = 20.0  # for agents to start, before the job is started without them
_LAST_REPORT_S = 10.0
_TABLE_EVERY_S = 5.0
_PROLOG = "SLURM_TASK_PROLOG"
_FILES = ("prolog", "nodes", "doors")


class MultiNodeJob:
    """Coordinator of one attempt of one job. Also a DetailProbe: the usage of the other nodes so far."""

    name = "nodes"
    interval_s = _TABLE_EVERY_S

    def __init__(
        self,
        job: Job,
        agents: NodeAgents,
        clock: Clock,
        folder: str,
        *,
        agent_module: str,
        cgroup_parent: str | None,
        is_shared: bool,
    ) -> None:
        """`agent_module` runs on each of the other nodes. `folder`: for a few small files; `is_shared`:
        every node has it."""
        self._is_shared = is_shared
        self._job = job
        self._agents = agents
        self._agent_module = agent_module
        self._clock = clock
        self._here = agents.allocation.here
        self._others = agents.allocation.others(_nodes_of(job, agents))
        self._parent = cgroup_parent or ""
        self._files = {name: os.path.join(folder, f"{job.uuid}.{name}") for name in _FILES}
        self._reports: dict[str, NodeReport] = {}
        self._process: NodeProcesses | None = None
        self._reader = ReportReader()
        self._changed = threading.Condition()
        self._is_silent = False  # the agents will send nothing more
        self._door: TaskDoor | None = None
        self._on_over: Callable[[EndCause], None] | None = None
        self._why_no_prolog = ""
        self._accounting = ""
        self._errors: list[str] = []
        self.details = Details()  # usage of each node, once the job is over

    # ---- before the job ------------------------------------------------------------------------------

    def begin(self, plan: LaunchPlan) -> LaunchPlan:
        """Returns the plan with the variables of its nodes. Waits a limited time for agents on the others."""
        env: dict[str, str] = {}
        prolog = self._files["prolog"]
        is_slurm = self._agents.allocation.engine == "slurm"
        if is_slurm:
            try:
                write_prolog(prolog, self._job.uuid, plan.env.get(_PROLOG, ""))
            except OSError as error:
                self._why_no_prolog = str(error)
        if self._others:
            self._start_agents()
            self._wait_until_ready()
            env |= self._node_variables()
        # Slurm fails tasks that do not find their prolog: it has to exist on every node they may run on.
        if is_slurm and not self._why_no_prolog and self._is_prolog_everywhere():
            env[_PROLOG] = prolog
        return replace(plan, env={**plan.env, **env})

    def watch(
        self,
        meter: JobMeter,
        groups: JobGroups | None,
        *,
        on_over: Callable[[EndCause], None],
        on_follow: Callable[[], None],
    ) -> None:
        """Counts tasks that begin here for the job from now on. `on_over`: a limit was exceeded on another
        node; `on_follow`: a task could only be followed. Both are called on threads of this object."""
        self._on_over = on_over
        self._accounting = groups.kind if groups is not None else PROCESS_TREE
        trees = SeveralTrees(meter.probe)
        meter.probe = trees

        def take(pid: int) -> str:
            how = join_or_follow(pid, groups, trees)
            if how == FOLLOWED:
                on_follow()
            return how

        try:
            self._door = TaskDoor(self._job.uuid, self._here, take)
        except OSError as error:
            self._errors.append(f"tasks that Slurm starts here are not counted: {error}")

    def _start_agents(self) -> None:
        asked = self._job.requirements if self._job.enforce and self._job.limits_resources else None
        order = NodeOrder(
            uuid=self._job.uuid,
            memory_bytes=asked.memory_bytes if asked else None,
            cpus=asked.cpus if asked else None,
            pids=asked.pids if asked else None,
            interval_s=self._job.interval_s,
            accounting=self._job.accounting,
            probes=self._job.probes,
            cgroup_parent=self._parent,
            prolog=self._files["prolog"],
        )
        words = [sys.executable, "-P", "-m", self._agent_module, msgspec.json.encode(order).decode()]
        try:
            self._process = self._agents.start(self._others, words)
        except OSError as error:
            self._reader.messages.append(f"agents could not be started: {error}")
            self._is_silent = True
            return
        threading.Thread(target=self._listen, name="joblens-nodes", daemon=True).start()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = self._reader.feed(line)
            if report is None:
                continue
            with self._changed:
                self._reports[report.part.node] = report
                self._changed.notify_all()
            if report.over and self._on_over is not None:
                self._on_over(EndCause(report.over))
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _wait_until_ready(self) -> None:
        deadline_s = mono_s(self._clock) + _READY_S
        with self._changed:
            while not self._is_silent and len(self._reports) < len(self._others):
                left_s = deadline_s - mono_s(self._clock)
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def _is_prolog_everywhere(self) -> bool:
        """Returns whether every node of the allocation has the prolog, whether the job uses that node or
        not."""
        if self._is_shared:
            return True
        seen = {node for node, report in self._reports.items() if report.has_prolog}
        return seen >= set(self._agents.allocation.nodes) - {self._here}

    def _node_variables(self) -> dict[str, str]:
        nodes = (self._here, *self._others)
        variables = {"JOBLENS_NODES": str(len(nodes)), "JOBLENS_NODE_LIST": ",".join(nodes)}
        with contextlib.suppress(OSError):
            with open(self._files["nodes"], "w", encoding="utf-8") as file:
                file.write("".join(f"{node}\n" for node in nodes))
            variables["JOBLENS_NODE_FILE"] = self._files["nodes"]
            variables |= self._agents.variables(self._job.uuid, self._files["doors"])
        return variables

    # ---- while it runs ---------------------------------------------------------------------------------

    def read(self) -> Details:
        return (
            Details(nodes=self._table(NodePart(node=self._here, is_first=True)))
            if self._others
            else Details()
        )

    def kill(self) -> None:
        """Kills the job's processes on the other nodes."""
        self._send(KILL)

    # ---- the end ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Takes the last readings of all nodes, after the end of the command."""
        if self._door is not None:
            self._door.close()
        self._send(END)
        deadline_s = mono_s(self._clock) + _LAST_REPORT_S
        with self._changed:
            while not self._is_silent and not all(report.is_final for report in self._all_reports()):
                left_s = deadline_s - mono_s(self._clock)
                if left_s <= 0:
                    break
                self._changed.wait(left_s)

    def merge_nodes(self, outcome: Outcome) -> Outcome:
        """Returns the outcome of all nodes together."""
        door = self._door
        if door is not None and door.taken:
            outcome = replace(outcome, usage=with_lower_bounds(outcome.usage))
        if not self._others:
            return outcome
        first = NodePart(
            node=self._here,
            usage=outcome.usage,
            processes=door.taken if door is not None else None,
            tasks=tuple(sorted(door.ranks)) if door is not None else (),
            is_first=True,
            accounting=self._accounting,
            error="; ".join(dict.fromkeys([*self._errors, *(door.errors if door is not None else ())])),
        )
        table = self._table(first, is_over=True)
        self.details = Details(nodes=table)
        outcome = replace(outcome, usage=merge_usage(outcome.usage, table.nodes[1:]))
        killed = [part.node for part in table.nodes[1:] if part.usage.oom_kills]
        if killed and outcome.status is Status.FAILED and outcome.reason in ("exited", "signal"):
            why = f"out of memory: killed by the kernel on {', '.join(killed)}"
            # The status of the command does not show why its processes on other nodes ended.
            outcome = replace(outcome, reason="out-of-memory", error=why, exit_code=self._job.oom_exit_code)
        return outcome

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            _end_agents(self._process)
        for path in self._files.values():
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _all_reports(self) -> list[NodeReport]:
        nothing = NodeReport(part=NodePart(node=""))
        return [self._reports.get(node, nothing) for node in self._others]

    def _table(self, first: NodePart, *, is_over: bool = False) -> NodeTable:
        parts = []
        for node, report in zip(self._others, self._all_reports(), strict=True):
            part = replace(report.part, node=node)
            if is_over and not report.is_final:
                part = replace(part, error="; ".join(filter(None, (part.error, self._why_missing(node)))))
            elif is_over and self._why_unannounced():
                part = replace(part, error="; ".join(filter(None, (part.error, self._why_unannounced()))))
            parts.append(part)
        return NodeTable(at_us=self._clock.now_us(), nodes=(first, *parts))

    def _why_missing(self, node: str) -> str:
        reason = f": {self._reader.messages[-1]}" if self._reader.messages else ""
        if node not in self._reports:
            return f"no joblens agent started there{reason}"
        return f"the joblens agent there ended before the job{reason}"

    def _why_unannounced(self) -> str:
        """Returns why tasks on that node could not be announced, or ''."""
        if self._why_no_prolog:
            return f"its tasks were not announced: {self._why_no_prolog}"
        if self._agents.allocation.engine == "slurm" and not self._is_prolog_everywhere():
            return f"its tasks were not announced: {self._files['prolog']} is not seen on every node"
        return ""

    def _send(self, word: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()


def _nodes_of(job: Job, agents: NodeAgents) -> int:
    """Returns the requested nodes. A command that a user types into an allocation gets all of them."""
    asked = job.requirements.nodes
    return asked or (1 if job.queue else len(agents.allocation.nodes))


def _end_agents(process: NodeProcesses) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(2.0)
    except (subprocess.TimeoutExpired, TimeoutError):
        process.terminate()
        threading.Thread(target=process.wait, daemon=True).start()
        return
    if process.stdout is not None:
        with contextlib.suppress(OSError):
            process.stdout.close()
