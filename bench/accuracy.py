"""Are the numbers right? Each job knows the truth about itself and writes it down."""

from collections.abc import Iterator
from statistics import median

from bench import cold_cache
from bench.commands import Workbench
from bench.goals import Figure

MODES = ("cgroup", "process_tree")


def figures(bench: Workbench) -> Iterator[Figure]:
    for mode in MODES:
        yield _forks(bench, mode)
    for mode in MODES:
        yield _spike(bench, mode)
    for mode in MODES:
        yield _daemon(bench, mode)
    yield from cold_cache.figures(bench)


def _cpu_seconds(record: dict[str, dict[str, float]]) -> float:
    return record["resource_usage"]["cpu_total_seconds"]


def _forks(bench: Workbench, mode: str) -> Figure:
    record = bench.record(mode, bench.workload("forks", 2000))
    truth = bench.truth()
    error = abs(_cpu_seconds(record) / truth - 1) * 100
    note = f"{_cpu_seconds(record):.3f} s against {truth:.3f} s of wait4"
    return Figure(f"CPU of 2,000 forks of 3 ms, error, {mode}", error, "%", 1.0, note=note)


def _spike(bench: Workbench, mode: str) -> Figure:
    errors, notes, truth = [], [], 0.0
    for delay_s in (0.9, 1.35, 1.8):
        record = bench.record(mode, bench.workload("spike", 500, delay_s))
        peak, truth = record["resource_usage"]["memory_peak_mb"], bench.truth()
        errors.append(abs(peak / truth - 1) * 100)
        notes.append(f"{peak:.0f}")
    note = f"{', '.join(notes)} MiB against {truth:.0f}"
    return Figure(f"peak of a 0.3 s spike of 500 MB, error, {mode}", max(errors), "%", 2.0, note=note)


def _daemon(bench: Workbench, mode: str) -> Figure:
    shares, record = [], {}
    for _ in range(3):
        record = bench.record(mode, bench.workload("daemon", 2.0))
        shares.append(_cpu_seconds(record) / bench.truth())
    note = f"{_cpu_seconds(record):.3f} s recorded, start of the interpreter included"
    return Figure(
        f"CPU of a double-forked child, share counted, {mode}",
        median(shares),
        "",
        0.99,
        at_least=True,
        note=note,
    )
