"""Samples as curves: one number for each of them, None where it is not known."""

from collections.abc import Callable, Sequence

from joblens.analysis.numbers.profile import real_spacing_s
from joblens.analysis.numbers.rates import elapsed_usec, per_second
from joblens.model.jobs.sample import Sample

_SHORTEST_USEC = 40_000  # a rate over less than four ticks of the kernel would be a spike made of nothing

Curve = list[float | None]


def rate_curve(samples: Sequence[Sample], rate: Callable[[Sample, Sample], float | None]) -> Curve:
    """None for the first, and for one that came too soon after the one before."""
    curve: Curve = []
    before: Sample | None = None
    shortest_usec = max(_SHORTEST_USEC, round((real_spacing_s(samples) or 0.0) * 250_000))
    for sample in samples:
        if before is not None and (elapsed_usec(before, sample) or 0) < shortest_usec:
            curve.append(None)
            continue
        curve.append(None if before is None else rate(before, sample))
        before = sample
    return curve


def device_curves(samples: Sequence[Sample]) -> dict[str, Curve]:
    """Network in bytes a second, power in watts, GPUs, by the names that JobSeries has for them. Only what
    was measured, and was ever more than nothing."""
    curves = {**_network(samples), **_power(samples), **_gpus(samples)}
    return {name: curve for name, curve in curves.items() if any(curve)}


def _network(samples: Sequence[Sample]) -> dict[str, Curve]:
    if not any(sample.network_rx_bytes for sample in samples[-1:]):
        return {}

    def rates(way: str) -> Curve:
        return rate_curve(samples, lambda earlier, later: per_second(earlier, later, f"network_{way}_bytes"))

    return {"network_rx_per_s": rates("rx"), "network_tx_per_s": rates("tx")}


def _power(samples: Sequence[Sample]) -> dict[str, Curve]:
    """The job's share of what the processors and the memory drew."""
    if not any(sample.host_energy_package_uj is not None for sample in samples):
        return {}
    from joblens.analysis.numbers.energy import energy_shares

    def watts(earlier: Sample, later: Sample) -> float | None:
        shares, usec = energy_shares([earlier, later]), elapsed_usec(earlier, later)
        if shares.package_uj is None or usec is None:
            return None
        return (shares.package_uj + (shares.dram_uj or 0)) / usec

    return {"power_watts": rate_curve(samples, watts)}


def _gpus(samples: Sequence[Sample]) -> dict[str, Curve]:
    if not any(sample.gpus for sample in samples):
        return {}
    from joblens.analysis.numbers.gpu_use import busy_curve, gpus_used, memory_curve

    used = gpus_used(samples)
    power: Curve = []
    for sample in samples:
        readings = [] if sample.gpus is None else [sample.gpus.get(name) for name in used]
        known = [reading.power_mw for reading in readings if reading is not None]
        drawn = [power_mw for power_mw in known if power_mw is not None]
        power.append(sum(drawn) / 1000 if drawn else None)
    return {
        "gpu_percent": busy_curve(samples),
        "gpu_memory_bytes": list(memory_curve(samples)),
        "gpu_power_watts": power,
    }
