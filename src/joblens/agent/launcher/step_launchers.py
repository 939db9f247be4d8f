"""Programs that only hold a step on other nodes: they end when Slurm or their daemons say it is over."""

import contextlib
from collections.abc import Iterable

# As the kernel has their names: 15 letters at most. mpirun leaves the srun behind that started its daemons.
_NAMES = frozenset({"srun", "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_pr"})
STEP_END_S = 5.0  # as long as Slurm may take to end a step whose tasks are gone


def are_step_launchers(pids: Iterable[int], proc: str = "/proc") -> bool:
    """Nothing but those is left: not what the job has forgotten to wait for."""
    return all(_name(pid, proc) in {*_NAMES, ""} for pid in pids)


def _name(pid: int, proc: str) -> str:
    """'' when it has just gone."""
    with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""
