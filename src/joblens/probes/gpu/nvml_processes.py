"""How busy each process kept a GPU, out of the averages that NVML hands over.

Asked for what was after a moment, NVML tells one number of each process that did anything since then: its
share of all the time from that moment on. The stamp beside it says when it was last seen at work."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from joblens.probes.gpu.following import GpuProcess


class ProcessUtilization:
    """Shares times the time between two readings add up to `busy_usec`."""

    def __init__(self) -> None:
        self.uses: dict[int, GpuProcess] = {}

    def add(self, samples: Sequence[Any], elapsed_us: int, listed: Collection[int]) -> None:
        """`samples` of the last `elapsed_us` have pid, and smUtil, encUtil and decUtil in percent. A process
        that is neither in them nor `listed` has ended, and is told no more."""
        idle = {
            pid: replace(use, utilization=0, encoder_utilization=0, decoder_utilization=0)
            for pid, use in self.uses.items()
            if pid in listed
        }
        by_pid: dict[int, list[Any]] = {}
        for sample in samples:
            by_pid.setdefault(sample.pid, []).append(sample)
        self.uses = idle | {pid: self._used(pid, own, elapsed_us) for pid, own in by_pid.items()}

    def _used(self, pid: int, samples: Sequence[Any], elapsed_us: int) -> GpuProcess:
        share = _mean([sample.smUtil for sample in samples])
        known = self.uses.get(pid)
        before_usec = known.busy_usec if known is not None else None
        return GpuProcess(
            utilization=share,
            busy_usec=(before_usec or 0) + share * elapsed_us // 10_000,
            encoder_utilization=_mean([sample.encUtil for sample in samples]),
            decoder_utilization=_mean([sample.decUtil for sample in samples]),
        )


def _mean(percents: Sequence[int]) -> int:
    """In hundredths of a percent."""
    return sum(percents) * 100 // len(percents)
