"""Takes a task that somebody else has started into a job's numbers."""

from joblens.agent.cgroups.groups import JobGroups
from joblens.agent.cgroups.placement import slurm_step
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.proc.several_trees import SeveralTrees

JOINED, FOLLOWED = "joined", "followed"


def join_or_follow(pid: int, groups: JobGroups | None, trees: SeveralTrees) -> str:
    """Into the job's own groups, which count it exactly; else it is followed. A task that Slurm holds in a
    group is left there: Slurm ends and limits its tasks by that. Raises ProbeError for one that is gone."""
    if groups is not None and not _is_held_by_slurm(pid) and _join(pid, groups):
        return JOINED
    trees.add(pid)
    return FOLLOWED


def _is_held_by_slurm(pid: int) -> bool:
    hierarchies = read_layout(pid=pid).hierarchies.values()
    return any(slurm_step(hierarchy.own_path) for hierarchy in hierarchies)


def _join(pid: int, groups: JobGroups) -> bool:
    """Whether any of them has it now: the first, which counts CPU time, is where it would be refused."""
    joined = 0
    for path in groups.attach_files():
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(str(pid).encode())
        except OSError:
            break
        joined += 1
    return joined > 0
