"""Fixes for numbers that `joblens doctor` cannot get here."""

from collections.abc import Collection

_V2_ALONE = "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1)"
_PROC = "mount /proc, and let this user see its processes there (hidepid=0)"
_NEWER_KERNEL = "a newer kernel"
_ONLY_ON_V2 = ("memory_kernel_parts", "oom_events", "io", "io_ops", "io_devices")
_KERNEL_FIXES = {
    "cpu_pressure": "boot the kernel with psi=1",
    "memory_pressure": "boot the kernel with psi=1",
    "io_pressure": "boot the kernel with psi=1",
    "memory_kernel_peak": "Linux 5.19 or later",
    "memory_kernel": "Linux 5.18 or later",
    "memory_swap": "boot the kernel with swapaccount=1",
    "oom_kills": "Linux 4.13 or later",
}


def fix_for_number(
    group: str,
    kind: str,
    *,
    missing: Collection[str] = (),
    group_advice: str = "",
    io_advice: str = "",
) -> str:
    """For a group of sample fields on a machine of that cgroup kind where groups can be made. `missing`:
    controllers that they lack; the advice says how to get them."""
    if kind != "cgroup-v2" and group in _ONLY_ON_V2:
        return _V2_ALONE
    if kind == "cgroup-v1" and group.endswith("_pressure"):
        return _V2_ALONE
    if _controller(group) in missing:
        return io_advice if _controller(group) == "io" else group_advice
    if group.startswith(("host_", "open_files")) or group in ("io_calls", "memory_virtual", "processes"):
        return _PROC
    return _KERNEL_FIXES.get(group, _NEWER_KERNEL)


def _controller(group: str) -> str:
    """The cgroup controller that gives a group of fields; pressure needs none."""
    if group.endswith("_pressure") or group == "cpu":
        return ""
    if group == "throttling":
        return "cpu"
    if group.startswith(("memory", "oom", "faults")):
        return "memory"
    if group.startswith(("pids", "threads")):
        return "pids"
    return "io" if group in ("io", "io_ops", "io_devices") else ""
