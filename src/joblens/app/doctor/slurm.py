"""Whether a Slurm is at hand, and what it lets joblens do."""

from joblens.model.errors import JoblensError
from joblens.model.jobs.capability import Capability
from joblens.runners.slurm.commands import SlurmCommands, has_slurm

_AREA = "clusters"
_ANSWER_S = 5.0
_NO_BOOKS = "accounting_storage/none"


def slurm_capabilities() -> list[Capability]:
    if not has_slurm():
        reason = "no sbatch here: this machine is of no Slurm cluster"
        return [Capability(area=_AREA, name="slurm", available=False, applies=False, reason=reason)]
    commands = SlurmCommands(wait_s=_ANSWER_S)
    try:
        version, config, partitions = commands.version(), commands.config(), commands.sinfo()
    except JoblensError as error:
        fix = error.hint or "see that its controller runs and that SLURM_CONF names the right file"
        return [Capability(area=_AREA, name="slurm", available=False, reason=_first_line(error), fix=fix)]
    names = ", ".join(dict.fromkeys(one.name for one in partitions))
    mechanism = f"Slurm {version}, cluster {config.get('ClusterName', '?')}, partitions: {names}"
    return [
        Capability(area=_AREA, name="slurm", available=True, mechanism=mechanism),
        _accounting(commands, config),
        _memory(config),
    ]


def _accounting(commands: SlurmCommands, config: dict[str, str]) -> Capability:
    """What `seff`, `import slurm` and the numbers beside ours need."""
    name, fix = "slurm accounting", "seff and import slurm need slurmdbd: ask who looks after the cluster"
    if config.get("AccountingStorageType", "") in ("", _NO_BOOKS):
        return Capability(
            area=_AREA, name=name, available=False, reason="this cluster keeps no books", fix=fix
        )
    try:
        commands.sacct(None, "--allocations", "--starttime=now")
    except JoblensError as error:
        return Capability(area=_AREA, name=name, available=False, reason=_first_line(error), fix=fix)
    seconds = config.get("JobAcctGatherFrequency", "")
    gather = config.get("JobAcctGatherType", "").removeprefix("jobacct_gather/")
    every = f"; memory sampled by {gather}, every {seconds} s" if gather not in ("", "none") else ""
    return Capability(area=_AREA, name=name, available=True, mechanism=f"sacct{every}")


def _memory(config: dict[str, str]) -> Capability:
    """Who ends a job that is over its memory."""
    name = "slurm memory limits"
    if "task/cgroup" in config.get("TaskPlugin", ""):
        return Capability(
            area=_AREA, name=name, available=True, mechanism="control groups, if it constrains RAM"
        )
    reason = "Slurm holds nobody to --mem here"
    return Capability(
        area=_AREA, name=name, available=True, mechanism="watched by joblens for its own jobs", reason=reason
    )


def _first_line(error: JoblensError) -> str:
    return str(error).strip().split("\n")[0]
