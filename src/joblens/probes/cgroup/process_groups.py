"""The control groups that another process is in."""

from joblens.probes.cgroup.layout import UNIFIED, parse_layout
from joblens.probes.proc.kernel_files import read_text

_COUNTED = ("cpu", "cpuacct", "memory", "pids")


def groups_of_process(pid: int) -> tuple[str, dict[str, str]]:
    """-> (kind of layout, hierarchy -> directory), as far as this process sees them. Nothing for a process
    that is gone, or that lives where its number means something else. What a control group probe reads is
    there; hierarchies that count nothing (devices, freezer) are not."""
    membership, mounts = read_text(f"/proc/{pid}/cgroup"), read_text("/proc/self/mountinfo")
    if membership is None or mounts is None:
        return "", {}
    layout = parse_layout(membership, mounts)
    directories = {
        key: hierarchy.directory
        for key, hierarchy in layout.hierarchies.items()
        if hierarchy.directory is not None and (key == UNIFIED or key in _COUNTED)
    }
    if UNIFIED in directories:
        directories.pop("cpuacct", None)  # the unified one counts the same, finer
    return layout.kind, directories
