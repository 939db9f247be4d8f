"""Allocation in which this process runs: its nodes, and node lists as Slurm writes them."""

import itertools
import re
from collections.abc import Mapping

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.jobs.job import Job

_MOST_NODES = 100_000
_PARTS = re.compile(r"\[([^\]]*)\]")


def expand_node_list(text: str) -> tuple[str, ...]:
    """Expands 'node[01-03,7]' to names. Raises InputError."""
    names: list[str] = []
    for pattern in _patterns(text):
        names += _expanded(pattern, text)
        if len(names) > _MOST_NODES:
            raise InputError(f"'{text}' names more than {_MOST_NODES} nodes")
    return tuple(names)


def _patterns(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    patterns, depth, pattern = [], 0, ""
    for character in text.strip():
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            patterns.append(pattern)
            pattern = ""
        else:
            pattern += character
    if depth:
        raise InputError(f"a bracket is missing in the list of nodes '{text}'")
    return [each for each in (*patterns, pattern) if each]


def _expanded(pattern: str, text: str) -> list[str]:
    # Pieces with an odd index were in brackets.
    pieces = [
        _numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(_PARTS.split(pattern))
    ]
    return ["".join(chosen) for chosen in itertools.islice(itertools.product(*pieces), _MOST_NODES + 1)]


def _numbers(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) > _MOST_NODES:
            raise InputError(f"'{one}' is no range of numbers in the list of nodes '{text}'")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


_STARTERS = re.compile(r"(?<![\w.-])(srun|mpirun|mpiexec|orterun|prterun|prun)(?![\w.-])")


class NodeDoorAddress(Struct, frozen=True):
    """Address of a `NodeDoor`, which starts processes on a node for callers with the token."""

    node: str  # its name among the nodes of the job
    host: str
    port: int


class NodeDoors(Struct, frozen=True, kw_only=True):
    """Addresses of the other nodes of one job. The token is a secret."""

    here: str
    token: str
    doors: tuple[NodeDoorAddress, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    engine: str  # slurm, ray
    job_id: str = ""
    nodes: tuple[str, ...] = ()
    here: str = ""  # this node, by the cluster's name for it

    def others(self, count: int) -> tuple[str, ...]:
        """Returns the other nodes for a job of `count` nodes, or fewer if the allocation is smaller."""
        return tuple(node for node in self.nodes if node != self.here)[: max(0, count - 1)]


def slurm_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Returns None outside a Slurm job, and on a login node inside an salloc."""
    job_id, here = environ.get("SLURM_JOB_ID", ""), environ.get("SLURMD_NODENAME", "")
    if not job_id or not here:
        return None
    try:
        nodes = expand_node_list(environ.get("SLURM_JOB_NODELIST", "") or here)
    except InputError:
        nodes = (here,)
    return Allocation(engine="slurm", job_id=job_id, nodes=nodes, here=here)


def may_start_tasks(job: Job) -> bool:
    """Returns whether the cluster may start processes for the job, which are then not its children."""
    return (job.requirements.nodes or 1) > 1 or any(_STARTERS.search(word) for word in job.argv)
