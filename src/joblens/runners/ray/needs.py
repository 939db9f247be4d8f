"""What jobs ask of Ray, and whether any of its nodes has as much. Pure."""

from collections.abc import Iterator, Sequence

from joblens.model.clusters.placing import PlacementRequest
from joblens.model.clusters.preview import TASK, Capacity, PlannedRequest, PreviewStep
from joblens.model.errors import InputError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.fitting import Lack
from joblens.model.values.units import format_bytes
from joblens.runners.ray.messages import Need, NodeOffer

More = tuple[tuple[str, float], ...]


def need_of(asked: Requirements, more: More = ()) -> Need:
    """A job that names no CPUs takes one, as everywhere."""
    return Need(
        cpus=asked.cpus if asked.cpus is not None else 1.0,
        memory_bytes=asked.memory_bytes or 0,
        gpus=asked.gpus or 0,
        nodes=asked.nodes or 1,
        more=more,
    )


def lack_of(name: str, need: Need, nodes: Sequence[NodeOffer]) -> Lack | None:
    """What no node has enough of; None: there are as many nodes as it needs."""
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


def why_waiting(need: Need, nodes: Sequence[NodeOffer]) -> str:
    """Of a task that Ray has not begun, though nothing of the run is in its way."""
    able = sum(_fits(need, node) for node in nodes)
    what = "no node has as much" if need.nodes == 1 else f"fewer than {need.nodes} nodes have as much"
    return f"wants {_in_words(need)}; {what}{' free' if able >= need.nodes else ''}"


def _in_words(need: Need) -> str:
    words = [f"{need.cpus:g} CPU{'' if need.cpus == 1 else 's'}"]
    if need.memory_bytes:
        words.append(format_bytes(need.memory_bytes))
    if need.gpus:
        words.append(f"{need.gpus} GPU{'' if need.gpus == 1 else 's'}")
    words += [f"{name}={amount:g}" for name, amount in need.more]
    return ", ".join(words) + (f" on each of {need.nodes} nodes" if need.nodes > 1 else "")


def width_of(need: Need, nodes: Sequence[NodeOffer]) -> int:
    """How many tasks that need as much can run at a time."""
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
    """A task for each job, or a placement group where it needs several nodes. Short jobs of one kind may
    share a task."""
    for step in steps:
        kinds: dict[tuple[int, Need], list[PlacementRequest]] = {}
        for parcel in step.parcels:
            kinds.setdefault((parcel.spec_job, need_of(parcel.requirements, more)), []).append(parcel)
        for (_, need), parcels in kinds.items():
            yield PlannedRequest(
                stage=step.stage,
                kind=TASK,
                name=parcels[0].name,
                count=len(parcels),
                jobs=tuple(int(parcel.uuid) for parcel in parcels),
                nodes=need.nodes,
                cpus=need.cpus,
                memory_bytes=need.memory_bytes or None,
                gpus=need.gpus,
                resources=dict(need.more),
                at_once=width_of(need, nodes),
            )


def read_resources(text: str) -> More:
    """'ssd=1, licence=0.5': of each job. Raises InputError."""
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
