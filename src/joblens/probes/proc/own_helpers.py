"""Programs that joblens itself starts to measure with. They are children of the process it runs in, and what
they use is not that program's work."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from joblens.analysis.numbers.attribution import NOTHING, Counters
from joblens.probes.proc.kernel_files import read_bytes
from joblens.probes.proc.proc_files import parse_io
from joblens.probes.proc.task_files import io_counters, rusage_counters


class OwnHelpers:
    """`lock` is held by whoever looks at this process's children, so that none of ours comes or goes
    meanwhile. `used`: what those that were waited for have added to this process's counters."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self.lock = threading.Lock()
        self.pids: set[int] = set()
        self.used: Counters = NOTHING

    def start(self, start: Callable[[], int]) -> int:
        """`start` gives the pid."""
        with self.lock:
            pid = start()
            self.pids.add(pid)
            return pid

    def ended(self, pid: int) -> int | None:
        """Its exit code, the one time it is told; None: it still runs."""
        with self.lock:
            try:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return None
                io = NOTHING
                with suppress(OSError, ValueError):
                    io = io_counters(parse_io(read_bytes(f"/proc/{pid}/io")))
                _, status, usage = os.wait4(pid, 0)
            except ChildProcessError:  # the program we are in has waited for it
                self.pids.discard(pid)
                return 0
            self.pids.discard(pid)
            self.used += rusage_counters(usage) + io
            return os.waitstatus_to_exitcode(status)


HELPERS = OwnHelpers()
os.register_at_fork(after_in_child=HELPERS.forget)
