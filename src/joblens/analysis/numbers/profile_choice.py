"""Which parts of a profile somebody wants."""

from collections.abc import Iterable, Mapping
from typing import Any

from joblens.model.errors import InputError

# Metric -> the parts of a profile that it fills.
METRICS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu", "process_cpu", "throttling"),
    "memory": ("memory", "process_memory"),
    "io": ("io_stats",),
    "network": ("network_io",),
    "gpu": ("gpu_stats",),
    "energy": ("energy",),
    "threads": ("threads",),
    "processes": ("processes",),
    "pressure": ("pressure",),
    "container": ("container_stats",),
}


def chosen_metrics(wanted: str | Iterable[str] | None) -> tuple[str, ...]:
    """In the order of METRICS; None is all of them. A text is a list with commas. Raises InputError."""
    if wanted is None:
        return tuple(METRICS)
    if not isinstance(wanted, Iterable):
        raise InputError(f"metrics={wanted!r}: expected names", hint=f"of {', '.join(METRICS)}")
    words = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    names = {str(word).strip() for word in words}
    unknown = sorted(names - METRICS.keys())
    if unknown or not names:
        told = f"there is no metric {', '.join(map(repr, unknown))}" if unknown else "no metric is named"
        raise InputError(told, hint=f"use one or more of {', '.join(METRICS)}")
    return tuple(name for name in METRICS if name in names)


def without_others(profile: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, Any]:
    """Parts that no chosen metric fills are empty; the keys stay."""
    kept = {part for metric in metrics for part in METRICS[metric]}
    left_out = {part for parts in METRICS.values() for part in parts} - kept
    return {key: {} if key in left_out else value for key, value in profile.items()}
