"""Whether the group that Slurm gave this process can be divided between jobs."""

import os
from collections.abc import Mapping

from joblens.agent.cgroups.placement import slurm_step
from joblens.model.jobs.capability import Capability
from joblens.probes.cgroup.layout import CgroupLayout, read_layout

_NAME = "Slurm's group"
_NO_GROUP = "this Slurm holds jobs in no control groups (ProctrackType, TaskPlugin); joblens makes its own"


def slurm_group_capability(
    refusal: str,
    group_advice: str,
    environ: Mapping[str, str] = os.environ,
    layout: CgroupLayout | None = None,
) -> list[Capability]:
    """Nothing outside of Slurm jobs. `refusal`: why no groups can be made, where none can."""
    if "SLURM_JOB_ID" not in environ:
        return []
    hierarchies = (layout or read_layout()).hierarchies.values()
    steps = [step for hierarchy in hierarchies if (step := slurm_step(hierarchy.own_path))]
    if not steps:
        return [Capability(area="accounting", name=_NAME, available=False, applies=False, reason=_NO_GROUP)]
    return [
        Capability(
            area="accounting",
            name=_NAME,
            available=not refusal,
            mechanism="" if refusal else f"job groups inside of {steps[0]}",
            reason=refusal,
            fix=f"{group_advice}; without, joblens watches memory itself" if refusal else "",
        )
    ]
