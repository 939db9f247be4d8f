"""How busy each process kept a GPU, out of the samples that NVML hands over a few at a time."""

from collections.abc import Collection, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from joblens.probes.gpu_following import GpuProcess

# NVML's first answer may reach back any time; no sample stands for more than was left since the last reading.
_LEEWAY = 1.5


class ProcessUtilization:
    """Each sample is a share of the time since the one before it; the sum of those times is `busy_usec`."""

    def __init__(self) -> None:
        self.newest_us = 0  # stamp of the newest sample: what to ask NVML for what is after it
        self.uses: dict[int, GpuProcess] = {}
        self._last_us: dict[
            int, int
        ] = {}  # stamp of each process's own last sample, where the last reading had one
        self._read_us: int | None = None

    def add(self, samples: Sequence[Any], now_us: int, listed: Collection[int]) -> None:
        """`samples` have pid, timeStamp and smUtil, encUtil, decUtil in percent. A process that is neither
        in them nor `listed` has ended, and is told no more."""
        since_us, before_us = self._read_us, self.newest_us
        self._read_us = now_us
        longest_us = int((now_us - since_us) * _LEEWAY) if since_us is not None else 0
        idle = {
            pid: replace(use, utilization=0, encoder_utilization=0, decoder_utilization=0)
            for pid, use in self.uses.items()
            if pid in listed
        }
        used, last_us = {}, {}
        ordered = sorted(samples, key=attrgetter("pid", "timeStamp"))
        for pid, mine in groupby(ordered, key=attrgetter("pid")):
            own = list(mine)
            used[pid] = self._used(pid, own, self._last_us.get(pid, before_us), longest_us)
            last_us[pid] = own[-1].timeStamp
        self.uses = {**idle, **used}
        self._last_us = last_us
        self.newest_us = max((self.newest_us, *last_us.values()))

    def _used(self, pid: int, samples: Sequence[Any], since_us: int, longest_us: int) -> GpuProcess:
        busy, spans, encoder, decoder = 0, 0, 0, 0
        for sample in samples:
            span_us = max(1, min(sample.timeStamp - since_us, longest_us))
            since_us = sample.timeStamp
            spans += span_us
            busy += sample.smUtil * span_us
            encoder += sample.encUtil * span_us
            decoder += sample.decUtil * span_us
        known = self.uses.get(pid)
        return GpuProcess(
            utilization=busy * 100 // spans,
            busy_usec=((known.busy_usec or 0) if known is not None else 0) + busy // 100,
            encoder_utilization=encoder * 100 // spans,
            decoder_utilization=decoder * 100 // spans,
        )
