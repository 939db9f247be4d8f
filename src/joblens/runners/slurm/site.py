"""What a Slurm has to give, as sinfo and its configuration tell."""

from collections.abc import Iterable, Mapping, Sequence

from joblens.model.clusters.placement import PlacementRequest
from joblens.model.clusters.slurm import Partition
from joblens.model.errors import PlanError
from joblens.model.runs.plan import Lack, more_than_there_is
from joblens.model.values.units import format_bytes, format_duration
from joblens.runners.slurm.commands import SlurmCommands
from joblens.runners.slurm.packing import NodeRoom, room_of
from joblens.runners.slurm.terms import Headroom, Terms

_USUAL_ARRAY = 1001  # Slurm's own default of MaxArraySize


class SlurmSite:
    """Asked once: partitions do not change while a run goes on."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._rooms: list[NodeRoom] | None = None

    def rooms(self) -> list[NodeRoom]:
        """Raises InputError without Slurm's commands, PlacingError when it does not answer."""
        if self._rooms is None:
            self._rooms = partition_rooms(self._commands.sinfo())
        return self._rooms

    def most_in_array(self) -> int:
        """0 where arrays are not allowed."""
        word = self._commands.config().get("MaxArraySize", "").split(" ")[0]
        return int(word) if word.isdecimal() else _USUAL_ARRAY

    def cluster(self) -> str:
        return self._commands.config().get("ClusterName", "")

    def check(
        self,
        parcels: Sequence[PlacementRequest],
        terms: Mapping[str, Terms],
        headroom: Headroom,
        by_actions: Iterable[str] = (),
    ) -> None:
        """Raises PlanError for partitions that are not there, and for what no node has. `by_actions`: the
        schedulers that actions of the workflow ask for nodes."""
        rooms = self.rooms()
        schedulers = {*(parcel.scheduler for parcel in parcels), *by_actions}
        _check_partitions(schedulers, terms, rooms)
        _check_walltimes(schedulers, terms, rooms)
        _check_nodes(schedulers, terms, rooms)
        _check_memory(schedulers, terms, rooms)
        lacks = [
            lack
            for parcel in parcels
            for lack in _lacks(parcel, room_of(terms_for(parcel.scheduler, terms).partition, rooms), headroom)
        ]
        if lacks:
            raise more_than_there_is(
                lacks, hint="ask for less in the file, or for another partition with --partition"
            )


def terms_for(scheduler: str, terms: Mapping[str, Terms]) -> Terms:
    return terms.get(scheduler) or terms[""]


def partition_rooms(partitions: Iterable[Partition]) -> list[NodeRoom]:
    """sinfo has a line for each kind of node."""
    kinds: dict[str, list[Partition]] = {}
    for one in partitions:
        kinds.setdefault(one.name, []).append(one)
    return [
        NodeRoom(
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
    schedulers: Iterable[str], terms: Mapping[str, Terms], rooms: Sequence[NodeRoom]
) -> None:
    known = [room.partition for room in rooms]
    for scheduler in sorted(schedulers):
        for name in terms_for(scheduler, terms).partition.split(","):
            if name and name not in known:
                where = f"scheduler '{scheduler}': " if scheduler else ""
                raise PlanError(
                    f"{where}Slurm has no partition '{name}'", hint=f"there are {', '.join(sorted(known))}"
                )


def _check_walltimes(
    schedulers: Iterable[str], terms: Mapping[str, Terms], rooms: Sequence[NodeRoom]
) -> None:
    """Slurm would take it, and let it wait for ever."""
    for scheduler in sorted(schedulers):
        asked = terms_for(scheduler, terms)
        room = room_of(asked.partition, rooms)
        limit_s = room.time_limit_s if room is not None else None
        walltime_s = asked.walltime_within(limit_s)
        if limit_s is None or walltime_s is None or walltime_s <= limit_s:
            continue
        where = f"scheduler '{scheduler}': " if scheduler else ""
        raise PlanError(
            f"{where}a walltime of {format_duration(walltime_s)} is more than"
            f" {f'partition {asked.partition}' if asked.partition else 'the default partition'} allows,"
            f" {format_duration(limit_s)}",
            hint="choose another with --walltime, or another --partition",
        )


def _check_nodes(schedulers: Iterable[str], terms: Mapping[str, Terms], rooms: Sequence[NodeRoom]) -> None:
    """The same: it waits until somebody brings more nodes."""
    for scheduler in sorted(schedulers):
        asked = terms_for(scheduler, terms)
        room = room_of(asked.partition, rooms)
        if room is None or asked.nodes <= room.nodes:
            continue
        where = f"scheduler '{scheduler}': " if scheduler else ""
        raise PlanError(
            f"{where}{asked.nodes} nodes are more than"
            f" {f'partition {asked.partition}' if asked.partition else 'the default partition'} has,"
            f" {room.nodes}",
            hint="choose fewer with --nodes, or another --partition",
        )


def _check_memory(schedulers: Iterable[str], terms: Mapping[str, Terms], rooms: Sequence[NodeRoom]) -> None:
    """sbatch would refuse it when the first job is placed."""
    for scheduler in sorted(schedulers):
        asked = terms_for(scheduler, terms)
        room, memory = room_of(asked.partition, rooms), asked.memory_bytes
        if room is None or memory is None or memory <= room.memory_bytes:
            continue
        name = scheduler or asked.scheduler
        where = f"scheduler '{name}': " if name else ""
        raise PlanError(
            f"{where}mem {asked.memory} is more than a node of"
            f" {f'partition {asked.partition}' if asked.partition else 'the default partition'} has,"
            f" {format_bytes(room.memory_bytes)}",
            hint="ask for less, or for another --partition",
        )


def _lacks(parcel: PlacementRequest, room: NodeRoom | None, headroom: Headroom) -> list[Lack]:
    """Where no partition is the default one Slurm itself has to say."""
    if room is None:
        return []
    needs = parcel.requirements
    wanted = (
        ("cpus", needs.cpus or 0, room.cpus),
        ("memory", needs.memory_bytes or 0, room.memory_bytes - headroom.memory_bytes),
        ("gpus", needs.gpus or 0, room.gpus),
        ("nodes", needs.nodes or 0, room.nodes),
        ("time", needs.timeout_s or 0, room.time_limit_s),
    )
    return [
        Lack(parcel.name, what, need, have) for what, need, have in wanted if have is not None and need > have
    ]
