"""How much of the energy that the machine drew is a job's, and what that means in CO2."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.numbers.reasons import NO_GRID_FACTOR
from joblens.model.jobs.job import Usage
from joblens.model.jobs.sample import Sample

# The host's CPU time is told in hundredths of a second: an interval with less of it has no share worth its
# name, and is taken together with the one beside it.
_LEAST_BUSY_USEC = 100_000
_UJ_PER_KWH = 3_600_000_000_000
_ENERGIES = ("energy_package_uj", "energy_dram_uj", "gpu_energy_uj")
TOO_SHORT = (
    "too short: the CPU time of the machine, of which it has a share, is told in hundredths of a second"
)
_Counters = tuple[int, int, int]  # energy, CPU time of the job, of the machine
_NO_ENERGY = "the energy it used is not known"


class EnergyShares(Struct, frozen=True):
    """The job's part. None: the machine does not tell, or it was too short to tell."""

    package_uj: int | None = None
    dram_uj: int | None = None


def energy_shares(samples: Sequence[Sample]) -> EnergyShares:
    """From one sample to the next the job is given what the machine drew in that time, times its part of the
    CPU time that all of the machine used: who keeps a processor awake pays for it, its idle draw included."""
    return EnergyShares(
        package_uj=_share(samples, "host_energy_package_uj"),
        dram_uj=_share(samples, "host_energy_dram_uj"),
    )


def _share(samples: Sequence[Sample], field: str) -> int | None:
    known = [
        (energy_uj, sample.cpu_total_usec, sample.host_cpu_busy_usec)
        for sample in samples
        if (energy_uj := getattr(sample, field)) is not None
        and sample.cpu_total_usec is not None
        and sample.host_cpu_busy_usec is not None
    ]
    if len(known) < 2:
        return None
    total_uj, has_drawn = 0.0, False
    for start, end in _steps(known):
        energy_uj, job_usec, busy_usec = (later - earlier for later, earlier in zip(end, start, strict=True))
        # A counter that went back belongs to another count (joblens was started anew): that step is lost.
        if energy_uj > 0:
            has_drawn = True
            total_uj += energy_uj * min(1.0, max(0, job_usec) / busy_usec)
    return round(total_uj) if has_drawn else None


def _steps(known: Sequence[_Counters]) -> list[tuple[_Counters, _Counters]]:
    """From where to where; in each the machine used enough CPU time."""
    steps: list[tuple[_Counters, _Counters]] = []
    start = known[0]
    for now in known[1:]:
        if now[2] - start[2] >= _LEAST_BUSY_USEC:
            steps.append((start, now))
            start = now
    if steps and start is not known[-1]:
        steps[-1] = (steps[-1][0], known[-1])
    return steps


def misses_energy(samples: Sequence[Sample], field: str) -> bool:
    """Whether a part of the time is not in it: no counter at the start or the end, or one that went back."""
    drawn = [getattr(sample, field) for sample in samples]
    known = [uj for uj in drawn if uj is not None]
    return drawn[0] is None or drawn[-1] is None or any(later < earlier for earlier, later in pairwise(known))


def co2_mg(uj: int, g_per_kwh: float) -> int:
    """Milligrams of CO2 for so much energy from a grid that stands for so many grams a kilowatt-hour."""
    return round(uj / _UJ_PER_KWH * g_per_kwh * 1000)


def with_co2(usage: Usage, g_per_kwh: float | None) -> Usage:
    """Of everything whose energy is known; a lower bound where a part of it is."""
    if g_per_kwh is None:
        return _without_co2(usage, NO_GRID_FACTOR)
    known = [uj for name in _ENERGIES if (uj := getattr(usage, name)) is not None]
    if not known:
        return _without_co2(usage, _NO_ENERGY)
    unknown = {name: why for name, why in usage.unknown.items() if name != "co2_mg"}
    lower = usage.lower_bounds
    if any(name in lower for name in _ENERGIES):
        lower = (*lower, "co2_mg")
    sources = {**usage.sources, "co2": f"energy x {g_per_kwh:g} g/kWh"}
    return replace(
        usage, co2_mg=co2_mg(sum(known), g_per_kwh), unknown=unknown, sources=sources, lower_bounds=lower
    )


def _without_co2(usage: Usage, why: str) -> Usage:
    return replace(usage, unknown={**usage.unknown, "co2_mg": why})
