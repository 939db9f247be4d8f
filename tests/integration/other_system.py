"""Makes this Python look like one on another system, then profiles: `python other_system.py win32|darwin`.

What those systems lack is taken away before joblens is imported; psutil, which they have, is loaded."""

import importlib.abc
import json
import logging  # noqa: F401  (loaded while the system is still itself, as everything joblens' libraries need)
import os
import socket
import subprocess
import sys
import tempfile
import threading  # noqa: F401
import time
from collections.abc import Sequence
from types import ModuleType

import apsw  # noqa: F401
import psutil

_MODULES = {"darwin": {"spwd"}, "win32": {"resource", "fcntl", "termios", "tty", "pty", "pwd", "grp", "spwd"}}
_LINUX_CALLS = ("sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create", "eventfd")
_UNIX_CALLS = (
    *("register_at_fork", "uname", "sysconf", "geteuid", "getuid", "getloadavg", "wait4", "waitid", "killpg"),
    *("setsid", "pread", "statvfs", "mkfifo", "WIFSIGNALED", "O_CLOEXEC"),
)


class Wall(importlib.abc.MetaPathFinder):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name in self._names or name.startswith("pynvml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def take_away(system: str) -> None:
    for name in _MODULES[system]:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Wall(_MODULES[system]))
    for name in _LINUX_CALLS + (_UNIX_CALLS if system == "win32" else ()):
        if hasattr(os, name):
            delattr(os, name)
    if system == "win32":
        del socket.AF_UNIX
    sys.platform = system


def main(system: str, folder: str, *, has_psutil: bool) -> None:
    child = [sys.executable, "-S", "-E", "-c", "import time\nwhile time.process_time() < 0.3: pass"]
    take_away(system)
    if not has_psutil:
        sys.modules["psutil"] = None  # type: ignore[assignment]
    import joblens

    profiler = joblens.ResourceProfiler(interval=0.05)
    profiler.start_profiling()
    held = bytearray(40 << 20)
    subprocess.run(child, check=True)
    until = time.process_time() + 0.2
    while time.process_time() < until:
        sum(range(1000))
    snapshot = profiler.snapshot()
    profile = profiler.stop_profiling()
    del held
    container = joblens.ContainerResourceMonitor("nobody", interval=0.05)
    container.start_monitoring()
    container_profile = container.stop_monitoring()
    monitor = joblens.JobMonitor(log_dir=folder, interval=0.05)
    with monitor.track_job("t", "tool", "script") as tracker:
        sum(range(100_000))
    try:
        joblens.run  # noqa: B018
        refusal = ""
    except ImportError as error:
        refusal = str(error)
    result = {
        "profile": profile,
        "snapshot": snapshot,
        "container": container_profile,
        "record": tracker.record,
        "refusal": refusal,
        "psutil": psutil.__version__,
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] or tempfile.gettempdir(), has_psutil="--without-psutil" not in sys.argv)
