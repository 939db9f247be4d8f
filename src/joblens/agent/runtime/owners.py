"""Who looks after a job, and whether it still does."""

import os

from joblens.model.errors import ProbeError
from joblens.model.jobs.job import Job, Owner
from joblens.probes.host.machine_load import HostFacts
from joblens.probes.proc.proc_files import parse_stat, process_start_ticks


def this_process(host: HostFacts) -> Owner:
    return Owner(
        host=host.hostname,
        pid=os.getpid(),
        start_ticks=process_start_ticks(os.getpid()) or 0,
        boot_id=host.boot_id,
        pid_namespace=pid_namespace(),
    )


def is_running(pid: int | None, start_ticks: int | None) -> bool:
    """The very process, not another one that got its number. One that has ended but that nobody has waited
    for yet does nothing any more."""
    if pid is None or start_ticks is None:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read())
    except (OSError, ValueError, ProbeError):
        return False
    return stat.is_alive and stat.start_ticks == start_ticks


def is_here(owner: Owner, host: HostFacts) -> bool:
    """On this machine as far as its name tells; only then can anything be said about it."""
    return owner.host == host.hostname


def waits_here(job: Job, host: HostFacts) -> bool:
    """For the supervisor of this machine: what a background job really runs lies in a file where it was
    submitted, though several machines may share the store."""
    return job.background and (job.created_by is None or is_here(job.created_by, host))


def is_within_reach(owner: Owner, host: HostFacts) -> bool:
    """Its pid means something to this process: neither the machine nor the container was started anew."""
    if owner.boot_id != host.boot_id:
        return False
    return not owner.pid_namespace or owner.pid_namespace == pid_namespace()


def is_gone(owner: Owner, host: HostFacts) -> bool:
    """Known to be gone. False also when it cannot be known."""
    if not is_here(owner, host):
        return False
    return not is_within_reach(owner, host) or not is_running(owner.pid, owner.start_ticks)


def pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
