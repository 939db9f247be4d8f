"""What is kept in memory of a job's samples while it runs: all of them for a short job, a bounded
selection that adds up to the same for a long one (every sample is in the store)."""

from collections.abc import Mapping

from joblens.analysis.rates import cpu_percent, unreclaimable_bytes
from joblens.model.sample import GpuReading, Sample

_MOST_KEPT = 2000
_WATCHED = (  # the sample with the highest value of each is never thinned out
    "memory_current_bytes",
    "memory_kernel_peak_bytes",
    "memory_largest_process_bytes",
    "memory_file_bytes",
    "memory_virtual_bytes",
    "memory_swap_bytes",
    "memory_pss_bytes",
    "memory_huge_bytes",
    "processes",
    "threads",
    "open_files",
    "host_memory_used_bytes",
    # counters: these are the last samples that had them
    "io_call_read_bytes",
    "network_rx_bytes",
    "instructions",
    "cpu_migrations",
    "host_energy_package_uj",
)
_WATCHED_OF_EACH_GPU = (
    "utilization",
    "memory_used_bytes",
    "temperature_c",
    "power_mw",
    "job_utilization",
    "job_memory_bytes",
    "job_busy_usec",  # counters again
    "energy_mj",
)


class RunningSummary:
    """`samples` begins with the first and ends with the last sample there was, peaks included; `count`
    is how many there were in all."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.count = 0
        self._champions: dict[str, tuple[float, tuple[Sample, ...]]] = {}

    def add(self, sample: Sample) -> None:
        self._compare(sample)
        self.samples.append(sample)
        self.count += 1
        if len(self.samples) > _MOST_KEPT:
            self._thin_out()

    def add_unstored(self, sample: Sample) -> None:
        """A look between two samples that may have seen a peak; it is not one of the stored samples."""
        self.add(sample)
        self.count -= 1

    def _compare(self, sample: Sample) -> None:
        for name in _WATCHED:
            self._challenge(name, getattr(sample, name), (sample,))
        self._challenge("unreclaimable", unreclaimable_bytes(sample), (sample,))
        if sample.gpus:
            self._compare_gpus(sample.gpus, sample)
        if self.samples:
            # A rate belongs to two neighbours; both stay.
            before = self.samples[-1]
            self._challenge("cpu_percent", cpu_percent(before, sample), (before, sample))

    def _compare_gpus(self, gpus: Mapping[str, GpuReading], sample: Sample) -> None:
        for name, reading in gpus.items():
            for field in _WATCHED_OF_EACH_GPU:
                self._challenge(f"{name} {field}", getattr(reading, field), (sample,))
        together = sum(reading.job_memory_bytes or 0 for reading in gpus.values())
        self._challenge("gpu memory", together, (sample,))

    def _challenge(self, name: str, value: float | None, samples: tuple[Sample, ...]) -> None:
        champion = self._champions.get(name)
        if value is not None and (champion is None or value >= champion[0]):
            self._champions[name] = (value, samples)

    def _thin_out(self) -> None:
        """Every second one goes, unless it holds a peak. The newest quarter is left as it is. GPUs are looked
        at less often than the rest: of those looks, too, every second one stays."""
        protected = {id(sample) for _, held in self._champions.values() for sample in held}
        old, recent = self.samples[: _MOST_KEPT * 3 // 4], self.samples[_MOST_KEPT * 3 // 4 :]
        kept: list[Sample] = []
        seen = {False: 0, True: 0}
        for sample in old:
            has_gpus = sample.gpus is not None
            if seen[has_gpus] % 2 == 0 or id(sample) in protected:
                kept.append(sample)
            seen[has_gpus] += 1
        self.samples = kept + recent
