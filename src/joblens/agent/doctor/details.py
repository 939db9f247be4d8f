"""What doctor tells of the looks that are taken now and then: each thread, and memory in depth."""

import os

from joblens.model.jobs.capability import Capability


def look_capabilities(proc: str = "/proc") -> list[Capability]:
    """Tried on this very process."""
    own = f"{proc}/{os.getpid()}"
    return [
        _row(
            "thread table",
            f"{own}/task/{os.getpid()}/stat",
            mechanism="/proc/PID/task: CPU and waiting of each thread (probe threads)",
            fix="mount /proc, and let this user see its processes there (hidepid=0)",
        ),
        _row(
            "memory in depth",
            f"{own}/smaps_rollup",
            mechanism="/proc/PID/smaps_rollup: fair shares, huge pages (probe memory: --probes +memory)",
            fix="Linux 4.14 or later, with CONFIG_PROC_PAGE_MONITOR",
        ),
    ]


def _row(name: str, path: str, *, mechanism: str, fix: str) -> Capability:
    try:
        with open(path, "rb") as file:
            file.read()
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
        return Capability(area="numbers", name=name, available=False, reason=reason, fix=fix)
    return Capability(area="numbers", name=name, available=True, mechanism=mechanism)
