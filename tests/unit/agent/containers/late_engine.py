"""Engine that answers late, and a reader of a busy container."""

import threading
import time

from joblens.agent.containers.watch import RunningContainer
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample
from joblens.probes.containers.info import ContainerInfo

INFO = ContainerInfo(id="c1", name="web", image="", image_id="", status="running", pid=7)
MIB = 1 << 20


class LateEngine:
    """Tells of a container once it may; by its CPU clock the container is busy all the time."""

    name = "engine"

    def __init__(self, *, tells_counters: bool, interval_s: float = 0.05) -> None:
        self.interval_s = interval_s
        self.may_answer = threading.Event()
        self._tells_counters = tells_counters

    def read(self) -> RunningContainer:
        self.may_answer.wait()
        return RunningContainer(
            INFO, {"cpu_total_usec": time.monotonic_ns() // 1000} if self._tells_counters else {}
        )

    def close(self) -> None:
        self.may_answer.set()


class BusyReader:
    """Reads a control group: half a core, and memory that grows."""

    details = Details()

    def __init__(self, start_mono_ns: int) -> None:
        self._start_ns, self._base_ns, self._memory = start_mono_ns, time.monotonic_ns(), 0

    def sample(self) -> Sample:
        now_ns = time.monotonic_ns()
        self._memory += MIB
        return Sample(
            at_us=now_ns // 1000,
            elapsed_us=(now_ns - self._start_ns) // 1000,
            cpu_total_usec=(now_ns - self._base_ns) // 2000,
            memory_anon_bytes=self._memory,
        )

    def origins(self) -> tuple[dict[str, str], dict[str, str]]:
        return {}, {}

    def close(self) -> None:
        """Nothing is open."""
