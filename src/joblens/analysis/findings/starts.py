"""Time that goes into starting instead of working: a slow beginning, and very many short processes."""

import itertools
from collections.abc import Iterator, Sequence

from joblens.analysis.findings.codes import Code
from joblens.analysis.numbers.rates import cpu_percent, elapsed_usec
from joblens.model.jobs.finding import Finding, Severity
from joblens.model.jobs.job import Outcome, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_duration

# A beginning is told when it is long in seconds and as a share, and clearly unlike what follows.
_LEAST_START_S = 5.0
_START_SHARE = 0.25
_QUIET = 0.2  # of what it uses later
_AT_WORK = 0.5
_MOSTLY = 0.8
_LEAST_LATER_PERCENT = 30.0
_LEAST_SPANS = 8  # rates between samples, to see a curve at all

# Each process that is started costs the kernel some hundred page faults and its parent a wait or two, and
# little work is done in between. Large allocations fault as often but never wait; threads only wait.
_LEAST_CPU_S = 1.0
_SYSTEM_SHARE = 0.35
_FAULTS_PER_CPU_S = 30_000
_WAITS_PER_CPU_S = 200
_FAULTS_PER_WAIT = (10, 600)


def start_findings(outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    yield from _slow_start(outcome, samples)
    yield from _many_processes(outcome.usage)


def _slow_start(outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Little CPU for a good part of its life, then a level it keeps."""
    if outcome.status is not Status.SUCCESS or len(samples) <= _LEAST_SPANS:
        return
    spans = [
        (later.elapsed_us / 1e6, rate)
        for earlier, later in itertools.pairwise(samples)
        if (rate := cpu_percent(earlier, later)) is not None and (elapsed_usec(earlier, later) or 0) >= 40_000
    ]
    if len(spans) < _LEAST_SPANS:
        return
    second_half = sorted(rate for _, rate in spans[len(spans) // 2 :])
    later_percent = second_half[len(second_half) // 2]
    if later_percent < _LEAST_LATER_PERCENT:
        return
    at_work = next(place for place, (_, rate) in enumerate(spans) if rate >= _AT_WORK * later_percent)
    if at_work == 0:
        return
    start_s = spans[at_work - 1][0]
    start_percent = sum(rate for _, rate in spans[:at_work]) / at_work
    kept = sum(rate >= _AT_WORK * later_percent for _, rate in spans[at_work:]) / (len(spans) - at_work)
    share = start_s / outcome.duration_s if outcome.duration_s > 0 else 0.0
    if start_s < _LEAST_START_S or share < _START_SHARE:
        return
    if start_percent <= _QUIET * later_percent and kept >= _MOSTLY:
        text = (
            f"in its first {format_duration(start_s)} ({100 * share:.0f} % of its time) it used "
            f"{start_percent:.0f} % CPU, from then on {later_percent:.0f} %: it took that long to get to work"
        )
        advice = "load less before it begins, keep prepared data, or give one start more to do"
        yield Finding(Code.SLOW_START, Severity.INFO, text, advice)


def _many_processes(usage: Usage) -> Iterator[Finding]:
    total, system = usage.cpu_total_usec, usage.cpu_system_usec
    faults, waits = usage.faults_minor, usage.context_switches_voluntary
    if total is None or system is None or faults is None or not waits or total < _LEAST_CPU_S * 1e6:
        return
    if usage.threads_peak is not None and usage.threads_peak > 2 * (usage.processes_peak or 1) + 2:
        return  # threads wait for each other: nothing can be told from that
    cpu_s = total / 1e6
    least, most = _FAULTS_PER_WAIT
    if (
        system >= _SYSTEM_SHARE * total
        and faults / cpu_s >= _FAULTS_PER_CPU_S
        and waits / cpu_s >= _WAITS_PER_CPU_S
        and least <= faults / waits <= most
    ):
        text = (
            f"{100 * system / total:.0f} % of its CPU time went into the kernel, with {faults / cpu_s:,.0f} "
            f"page faults and {waits / cpu_s:,.0f} waits a CPU second: it starts very many short processes"
        )
        advice = "do more in each: a loop inside one program, many arguments a call, fewer pipes"
        yield Finding(Code.MANY_PROCESSES, Severity.INFO, text, advice)
