"""Requirements of jobs at Ray: resources, nodes that have them, jobs that share a task. Pure.

Placing a task of Ray takes a millisecond or two. Jobs shorter than a tenth of a second share a task, one
after the other; longer or unknown ones have a task each. Durations of a kind of jobs come from those that
have ended.

Ray keeps no order. If some jobs have priority, it gets only as many as can run at once."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct, field

from joblens.model.clusters.placement import TASK, Capacity, PlacementRequest, PlannedRequest, PreviewStep
from joblens.model.errors import InputError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Lack
from joblens.model.values.units import format_bytes
from joblens.runners.ray.messages import Need, NodeOffer, Wanted

More = tuple[tuple[str, float], ...]


def need_of(asked: Requirements, more: More = ()) -> Need:
    """Returns the resources of a job: one CPU unless it names a number."""
    return Need(
        cpus=asked.cpus if asked.cpus is not None else 1.0,
        memory_bytes=asked.memory_bytes or 0,
        gpus=asked.gpus or 0,
        nodes=asked.nodes or 1,
        more=more,
    )


def lack_of(name: str, need: Need, nodes: Sequence[NodeOffer]) -> Lack | None:
    """Returns the resource that no node has enough of, or None if there are enough nodes."""
    able = [node for node in nodes if _fits(need, node)]
    if len(able) >= need.nodes:
        return None
    if able:
        return Lack(name, "nodes", need.nodes, len(able))
    for what, amount, have in (
        ("gpus", float(need.gpus), [node.gpus for node in nodes]),
        ("cpus", need.cpus, [node.cpus for node in nodes]),
        ("memory", float(need.memory_bytes), [float(node.memory_bytes) for node in nodes]),
        *((key, amount, [node.more.get(key, 0.0) for node in nodes]) for key, amount in need.more),
    ):
        if amount > max(have, default=0.0):
            return Lack(name, what, amount, max(have, default=0.0))
    return Lack(name, "cpus and memory together on one node", 1, 0)


def wait_reason(need: Need, nodes: Sequence[NodeOffer]) -> str:
    """Returns why Ray has not begun a task, though no other job of the run is in its way."""
    able = sum(_fits(need, node) for node in nodes)
    what = "no node has as much" if need.nodes == 1 else f"fewer than {need.nodes} nodes have as much"
    return f"wants {_describe(need)}; {what}{' free' if able >= need.nodes else ''}"


def _describe(need: Need) -> str:
    words = [f"{need.cpus:g} CPU{'' if need.cpus == 1 else 's'}"]
    if need.memory_bytes:
        words.append(format_bytes(need.memory_bytes))
    if need.gpus:
        words.append(f"{need.gpus} GPU{'' if need.gpus == 1 else 's'}")
    words += [f"{name}={amount:g}" for name, amount in need.more]
    return ", ".join(words) + (f" on each of {need.nodes} nodes" if need.nodes > 1 else "")


def width_of(need: Need, nodes: Sequence[NodeOffer]) -> int:
    """Returns how many tasks with this need can run at a time."""
    return sum(_times(need, node) for node in nodes) // need.nodes


def _times(need: Need, node: NodeOffer) -> int:
    shares = [
        have / amount
        for amount, have in (
            (need.cpus, node.cpus),
            (need.memory_bytes, node.memory_bytes),
            (need.gpus, node.gpus),
            *((amount, node.more.get(key, 0.0)) for key, amount in need.more),
        )
        if amount
    ]
    return int(min(shares, default=1.0))


def _fits(need: Need, node: NodeOffer) -> bool:
    return (
        need.cpus <= node.cpus
        and need.memory_bytes <= node.memory_bytes
        and need.gpus <= node.gpus
        and all(amount <= node.more.get(key, 0.0) for key, amount in need.more)
    )


def capacity_of(node: NodeOffer) -> Capacity:
    return Capacity(
        name=node.name or node.node_id or "this machine",
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        gpus=node.gpus,
        resources=dict(node.more),
    )


def planned_requests(
    steps: Sequence[PreviewStep], more: More, nodes: Sequence[NodeOffer]
) -> Iterator[PlannedRequest]:
    """Yields a task per job, or a placement group for a multi-node job. Short jobs of one kind may share a
    task."""
    for step in steps:
        kinds: dict[tuple[int, Need], list[PlacementRequest]] = {}
        for request in step.requests:
            kinds.setdefault((request.spec_job, need_of(request.requirements, more)), []).append(request)
        for (_, need), requests in kinds.items():
            yield PlannedRequest(
                stage=step.stage,
                kind=TASK,
                name=requests[0].name,
                count=len(requests),
                jobs=tuple(int(request.uuid) for request in requests),
                nodes=need.nodes,
                cpus=need.cpus,
                memory_bytes=need.memory_bytes or None,
                gpus=need.gpus,
                resources=dict(need.more),
                at_once=width_of(need, nodes),
            )


def read_resources(text: str) -> More:
    """Parses 'ssd=1, licence=0.5', the resources of each job. Raises InputError."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        try:
            found[name] = float(amount or 1)
        except ValueError:
            found[name] = -1.0
        if not name or not 0 < found[name] < float("inf") or name in ("CPU", "GPU", "memory"):
            raise InputError(f"ray.resources: '{part}' is not NAME=AMOUNT of a resource of the cluster's own")
    return tuple(sorted(found.items()))


BUNDLE_S = 0.2  # of work in one task
_MOST = 128  # jobs in one task
_LEAST_S = 0.02
_ALONE_S = BUNDLE_S / 2
# With the first jobs of a kind: if none has ended by then they are long. Until then Ray has enough of them.
_TIMEOUT_S = 2.0
_WEIGHT = 0.3  # weight of the last task in the mean
_AHEAD = 2  # tasks of short jobs at Ray, per running one

Kind = tuple[Need, int]


class _Waiting(Struct):
    jobs: deque[Wanted] = field(default_factory=deque)
    tasks: int = 0  # at Ray
    mean_s: float | None = None  # per job
    first_began_s: float | None = None


class Bundling:
    """Jobs that wait for a task. The time is an argument of each call, in seconds that only increase."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, _Waiting] = {}
        self.is_ranked = False  # jobs of the run have different priorities

    def add(self, jobs: Collection[Wanted]) -> None:
        for job in jobs:
            self._kinds.setdefault(_kind(job), _Waiting()).jobs.append(job)

    def remove(self, uuids: Collection[str]) -> set[str]:
        """Returns those that were still waiting."""
        found: set[str] = set()
        for waiting in self._kinds.values():
            here = {job.uuid for job in waiting.jobs if job.uuid in uuids}
            if here:
                found |= here
                waiting.jobs = deque(job for job in waiting.jobs if job.uuid not in here)
        return found

    @property
    def uuids(self) -> set[str]:
        return {job.uuid for waiting in self._kinds.values() for job in waiting.jobs}

    @property
    def needs(self) -> set[Need]:
        return {need for (need, _), waiting in self._kinds.items() if waiting.jobs}

    def began(self, need: Need, kind: int, now_s: float) -> None:
        waiting = self._kinds[need, kind]
        if waiting.first_began_s is None:
            waiting.first_began_s = now_s

    def ended(self, need: Need, kind: int, jobs: int, seconds: float) -> None:
        """Notes the end of a task, however it ended; `jobs`: number of its jobs that ended in it."""
        waiting = self._kinds[need, kind]
        waiting.tasks -= 1
        if jobs:
            mean_s = seconds / jobs
            old_s = waiting.mean_s
            waiting.mean_s = mean_s if old_s is None else old_s + _WEIGHT * (mean_s - old_s)

    def take(self, width: dict[Need, int], now_s: float) -> Iterator[list[Wanted]]:
        """Yields the jobs to pass to Ray now, each list as one task. `width`: number of tasks with such a
        need that the cluster can run at a time; default: one."""
        in_order = self._in_order()
        tasks = sum(waiting.tasks for waiting in self._kinds.values())
        for need, waiting in in_order:
            at_once = max(1, width.get(need, 1))
            is_next = waiting is in_order[0][1]
            while waiting.jobs:
                # The first goes to Ray even if others run: small ones might otherwise overtake it
                # indefinitely.
                if self.is_ranked and tasks >= at_once and not (is_next and not waiting.tasks):
                    break
                size = 1 if need.nodes > 1 or need.gpus else self._size(waiting, at_once, now_s)
                if not size:
                    break
                waiting.tasks += 1
                tasks += 1
                yield [waiting.jobs.popleft() for _ in range(min(size, len(waiting.jobs)))]

    def _in_order(self) -> list[tuple[Need, _Waiting]]:
        kinds = [(need, waiting) for (need, _), waiting in self._kinds.items() if waiting.jobs]
        return sorted(kinds, key=lambda one: -one[1].jobs[0].priority) if self.is_ranked else kinds

    def next_due_s(self) -> float | None:
        """Returns when jobs have waited long enough for the first of their kind."""
        due = [
            waiting.first_began_s + _TIMEOUT_S
            for waiting in self._kinds.values()
            if waiting.jobs and waiting.mean_s is None and waiting.first_began_s is not None
        ]
        return min(due, default=None)

    def _size(self, waiting: _Waiting, at_once: int, now_s: float) -> int:
        """Returns the number of jobs of the next task; 0: it is too early for one."""
        is_full = waiting.tasks >= _AHEAD * at_once
        if waiting.mean_s is None:
            began_s = waiting.first_began_s
            is_long = began_s is not None and now_s - began_s >= _TIMEOUT_S
            return 1 if is_long or not is_full else 0
        if waiting.mean_s >= _ALONE_S:
            return 1
        if is_full:
            return 0
        mean_s = max(waiting.mean_s, 1e-4)
        # The last jobs are divided evenly, but not into tasks that cost Ray more than their work.
        each, left = -(-len(waiting.jobs) // at_once), -(-len(waiting.jobs) // (_AHEAD * at_once))
        fair = max(left, min(each, int(_LEAST_S / mean_s)))
        return max(1, min(_MOST, fair, int(BUNDLE_S / mean_s)))


def _kind(job: Wanted) -> Kind:
    return job.need, job.kind
