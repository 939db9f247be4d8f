"""Limits that no kernel holds: looked at by joblens, often enough that little is lost by it.

Memory is what cannot be reclaimed, as everywhere. No limit of the address space stands in for it: programs
reserve far more than they use, and one that is refused memory ends in its own way instead of being killed."""

from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.sample import Sample

CALM_S = 0.1  # between looks
CLOSE_S = 0.05  # where the next one may already come too late
_CLOSE_PART = 0.5  # of its limit


class LimitWatch:
    """One job's. `interval_s` is how soon it should be looked at again."""

    def __init__(self, memory_bytes: int | None = None, pids: int | None = None) -> None:
        self.interval_s = CALM_S
        self._memory_bytes = memory_bytes
        self._pids = pids

    def __bool__(self) -> bool:
        return self._memory_bytes is not None or self._pids is not None

    def judge(self, sample: Sample) -> EndCause | None:
        """What it has to be ended for."""
        used = unreclaimable_bytes(sample)
        if used is not None and self._memory_bytes is not None:
            if used > self._memory_bytes:
                return EndCause.MEMORY_LIMIT
            self.interval_s = CLOSE_S if used > _CLOSE_PART * self._memory_bytes else CALM_S
        if self._pids is not None and (sample.threads or 0) > self._pids:
            return EndCause.PIDS_LIMIT
        return None
