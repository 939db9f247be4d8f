"""What looks at a host program beside its own counters (GPUs, energy, threads …), for one measurement."""

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from joblens.agent.instruments.details import DetailTaker
from joblens.agent.instruments.other_probes import OtherProbes
from joblens.agent.instruments.table import InstrumentSet
from joblens.agent.measuring.meter import COUNTERS
from joblens.analysis.numbers.usage import total_usage
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken

# Numbers of Usage that only instruments tell.
NUMBERS = (
    "network_rx_bytes",
    "network_tx_bytes",
    "network_rx_packets",
    "network_tx_packets",
    "gpu_memory_peak_bytes",
    "gpu_busy_usec",
    "gpu_energy_uj",
    "energy_package_uj",
    "energy_dram_uj",
    "co2_mg",
    "instructions",
    "cycles",
    "cpu_migrations",
)


_NEWS_A_WRITE = 16  # each replaces the one before it


class WindowInstruments:
    """`read` and `look` are called with every sample, by one thread at a time."""

    def __init__(self, uuid: str, opened: InstrumentSet) -> None:
        self._news: deque[DetailsTaken] = deque()
        self._others = OtherProbes(opened.probes)
        self._taker = DetailTaker(uuid, opened.details, self._news.extend)
        self._base: dict[str, int] = {}

    @property
    def details(self) -> Details:
        return self._taker.latest

    def read(self) -> dict[str, Any]:
        """Sample fields; counters since they were first read."""
        fields = self._others.read()
        for name in COUNTERS.intersection(fields):
            fields[name] = max(0, fields[name] - self._base.setdefault(name, fields[name]))
        return fields

    def take_news(self) -> list[DetailsTaken]:
        """Details that nobody has taken yet, from any thread."""
        taken: deque[DetailsTaken] = deque(maxlen=_NEWS_A_WRITE)
        with contextlib.suppress(IndexError):  # none is left, or another thread has just taken the last
            while True:
                taken.append(self._news.popleft())
        return list(taken)

    def look(self, *, final: bool = False) -> None:
        self._taker.tick(final=final)

    def add_to(self, usage: Usage, samples: Sequence[Sample]) -> Usage:
        """`usage` with what the instruments have seen, and why the rest is not known."""
        sources, reasons, lower = self._others.origins()
        told = total_usage(
            samples,
            None,
            accounting="in-process",
            sources=sources,
            unknown=reasons,
            lower_bounds=lower,
        )
        known = {name: value for name in NUMBERS if (value := getattr(told, name)) is not None}
        # CPU, memory and I/O of a host program have sources of their own.
        more = {group: source for group, source in told.sources.items() if group not in usage.sources}
        unknown = usage.unknown | {name: told.unknown[name] for name in NUMBERS if name in told.unknown}
        return replace(
            usage,
            **known,
            sources=usage.sources | more if known else usage.sources,
            unknown={name: why for name, why in unknown.items() if name not in known},
            lower_bounds=usage.lower_bounds + tuple(name for name in told.lower_bounds if name in known),
        )

    def close(self) -> None:
        self._others.close()
        self._taker.close()
