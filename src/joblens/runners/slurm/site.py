"""Slurm site: capacity of a cluster, from sinfo and its configuration."""

from collections.abc import Iterable, Mapping, Sequence

from joblens.model.clusters.placement import PlacementRequest
from joblens.model.clusters.slurm import Partition
from joblens.model.errors import PlanError
from joblens.model.runs.plan import Lack, more_than_there_is
from joblens.model.values.units import format_bytes, format_duration
from joblens.runners.slurm.commands import SlurmCommands
from joblens.runners.slurm.packing import LargestNode, largest_node_of
from joblens.runners.slurm.terms import Headroom, Terms

_USUAL_ARRAY = 1001  # Slurm's own default of MaxArraySize


class SlurmSite:
    """Partitions of a site, read once: they do not change during a run."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._largest_nodes: list[LargestNode] | None = None

    def largest_nodes(self) -> list[LargestNode]:
        """Raises InputError without Slurm's commands, PlacingError without an answer."""
        if self._largest_nodes is None:
            self._largest_nodes = largest_nodes_of(self._commands.sinfo())
        return self._largest_nodes

    def most_in_array(self) -> int:
        """Returns 0 if arrays are not allowed."""
        word = self._commands.config().get("MaxArraySize", "").split(" ")[0]
        return int(word) if word.isdecimal() else _USUAL_ARRAY

    def cluster(self) -> str:
        return self._commands.config().get("ClusterName", "")

    def check(
        self,
        requests: Sequence[PlacementRequest],
        terms: Mapping[str, Terms],
        headroom: Headroom,
        by_actions: Iterable[str] = (),
    ) -> None:
        """Raises PlanError for unknown partitions, and for requirements that no node meets. `by_actions`: the
        schedulers for which actions of the workflow request nodes."""
        largest_nodes = self.largest_nodes()
        schedulers = {*(request.scheduler for request in requests), *by_actions}
        _check_partitions(schedulers, terms, largest_nodes)
        _check_walltimes(schedulers, terms, largest_nodes)
        _check_nodes(schedulers, terms, largest_nodes)
        _check_memory(schedulers, terms, largest_nodes)
        lacks = [
            lack
            for request in requests
            for lack in _lacks(
                request,
                largest_node_of(terms_for(request.scheduler, terms).partition, largest_nodes),
                headroom,
            )
        ]
        if lacks:
            raise more_than_there_is(
                lacks, hint="ask for less in the file, or for another partition with --partition"
            )


def terms_for(scheduler: str, terms: Mapping[str, Terms]) -> Terms:
    return terms.get(scheduler) or terms[""]


def largest_nodes_of(partitions: Iterable[Partition]) -> list[LargestNode]:
    """Combines the lines of sinfo, one per kind of node, by partition."""
    kinds: dict[str, list[Partition]] = {}
    for one in partitions:
        kinds.setdefault(one.name, []).append(one)
    return [
        LargestNode(
            partition=name,
            cpus=max(one.cpus_per_node for one in lines),
            memory_bytes=max(one.memory_per_node_bytes for one in lines),
            gpus=max(one.gpus_per_node for one in lines),
            nodes=sum(one.nodes for one in lines),
            time_limit_s=lines[0].max_time_s,
            default_time_s=lines[0].default_time_s,
            is_default=any(one.is_default for one in lines),
        )
        for name, lines in kinds.items()
    ]


def _check_partitions(
    schedulers: Iterable[str], terms: Mapping[str, Terms], largest_nodes: Sequence[LargestNode]
) -> None:
    known = [largest.partition for largest in largest_nodes]
    for scheduler in sorted(schedulers):
        for name in terms_for(scheduler, terms).partition.split(","):
            if name and name not in known:
                raise PlanError(
                    f"{_where(scheduler)}Slurm has no partition '{name}'",
                    hint=f"there are {', '.join(sorted(known))}",
                )


def _check_walltimes(
    schedulers: Iterable[str], terms: Mapping[str, Terms], largest_nodes: Sequence[LargestNode]
) -> None:
    """Refuses a request that Slurm would accept and never start."""
    for scheduler in sorted(schedulers):
        wanted = terms_for(scheduler, terms)
        largest = largest_node_of(wanted.partition, largest_nodes)
        limit_s = largest.time_limit_s if largest is not None else None
        walltime_s = wanted.walltime_within(limit_s)
        if limit_s is None or walltime_s is None or walltime_s <= limit_s:
            continue
        raise PlanError(
            f"{_where(scheduler)}a walltime of {format_duration(walltime_s)} is more than"
            f" {_partition(wanted)} allows, {format_duration(limit_s)}",
            hint="choose another with --walltime, or another --partition",
        )


def _check_nodes(
    schedulers: Iterable[str], terms: Mapping[str, Terms], largest_nodes: Sequence[LargestNode]
) -> None:
    """Refuses a request that would wait until more nodes are added."""
    for scheduler in sorted(schedulers):
        wanted = terms_for(scheduler, terms)
        largest = largest_node_of(wanted.partition, largest_nodes)
        if largest is None or wanted.nodes <= largest.nodes:
            continue
        raise PlanError(
            f"{_where(scheduler)}{wanted.nodes} nodes are more than {_partition(wanted)} has,"
            f" {largest.nodes}",
            hint="choose fewer with --nodes, or another --partition",
        )


def _check_memory(
    schedulers: Iterable[str], terms: Mapping[str, Terms], largest_nodes: Sequence[LargestNode]
) -> None:
    """Refuses a request that sbatch would refuse when the first job is placed."""
    for scheduler in sorted(schedulers):
        wanted = terms_for(scheduler, terms)
        largest, memory = largest_node_of(wanted.partition, largest_nodes), wanted.memory_bytes
        if largest is None or memory is None or memory <= largest.memory_bytes:
            continue
        raise PlanError(
            f"{_where(scheduler or wanted.scheduler)}mem {wanted.memory} is more than a node of"
            f" {_partition(wanted)} has, {format_bytes(largest.memory_bytes)}",
            hint="ask for less, or for another --partition",
        )


def _where(scheduler: str) -> str:
    return f"scheduler '{scheduler}': " if scheduler else ""


def _partition(wanted: Terms) -> str:
    return f"partition {wanted.partition}" if wanted.partition else "the default partition"


def _lacks(request: PlacementRequest, largest: LargestNode | None, headroom: Headroom) -> list[Lack]:
    """Returns nothing without a default partition: only Slurm can decide then."""
    if largest is None:
        return []
    needs = request.requirements
    wanted = (
        ("cpus", needs.cpus or 0, largest.cpus),
        ("memory", needs.memory_bytes or 0, largest.memory_bytes - headroom.memory_bytes),
        ("gpus", needs.gpus or 0, largest.gpus),
        ("nodes", needs.nodes or 0, largest.nodes),
        ("time", needs.timeout_s or 0, largest.time_limit_s),
    )
    return [
        Lack(request.name, what, need, have)
        for what, need, have in wanted
        if have is not None and need > have
    ]
