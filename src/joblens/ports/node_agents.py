"""How a process gets to the other nodes that a job has. Who places jobs knows a way (srun, a task of Ray)."""

from collections.abc import Sequence
from typing import IO, Protocol

from joblens.model.clusters.allocation import Allocation


class NodeProcesses(Protocol):
    """One on each node, seen together like a child of ours. What is written to `stdin` reaches all of them,
    what they print comes out of `stdout` line by line, and ends when all of them have ended."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError or subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None: ...


class NodeAgents(Protocol):
    allocation: Allocation  # of this process

    def variables(self, uuid: str, path: str) -> dict[str, str]:
        """What else the job's command is told. Whatever is secret goes into a private file at `path`. Raises
        OSError."""
        ...

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> NodeProcesses:
        """That command line on each of `nodes`, which finds the name of its own in SLURMD_NODENAME or
        JOBLENS_NODE. Raises OSError."""
        ...
