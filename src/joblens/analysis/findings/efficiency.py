"""Efficiency findings: waiting, slow start-up, very many short processes, unused requests.

Thresholds are chosen so that an efficient job has no finding: findings are for acting on.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from joblens.analysis.numbers.profile import rates_over
from joblens.analysis.numbers.rates import (
    LEAST_THROTTLED_S,
    cpu_percent,
    elapsed_usec,
    host_cpu_percent,
    is_out_of_memory,
    is_throttled,
    node_count,
    peak_of,
)
from joblens.model.jobs.job import BY_AFFINITY, Code, Finding, Outcome, Record, Severity, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import MIB, counted, format_bytes, format_duration

# Shares of the job's time, in percent, from which waiting is reported.
_CPU_PRESSURE = 25
_IO_PRESSURE = 25
_MEMORY_PRESSURE = 5
_MIN_WAIT_S = LEAST_THROTTLED_S
# Advice about sizes is for jobs long enough to show how they behave.
_MIN_DURATION_S = 5.0
_MIN_MEMORY_SAVED = 128 * MIB
# Share of its CPUs: below the first it did not fill the machine, above the second it did.
_FEW_OF_ITS_CPUS, _MOST_OF_ITS_CPUS = 0.5, 0.75
_FULL = 80  # percent of the machine's CPUs
_GPU_BUSY = 0.1  # of its time: its work is done on the GPU, not the CPU


def waiting_findings(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    usage = outcome.usage
    cpus = record.job.requirements.cpus
    if is_throttled(outcome):
        throttled = _share(usage.cpu_throttled_usec, outcome) or 0.0
        text = f"throttled by its CPU limit for {_spent(usage.cpu_throttled_usec, throttled)}"
        yield Finding(Code.CPU_THROTTLED, Severity.WARNING, text, _more_cpus(cpus or 1, usage))
    pressure = _share(usage.cpu_pressure_usec, outcome)
    if pressure is not None and pressure >= _CPU_PRESSURE and not is_throttled(outcome):
        text = f"waited {_spent(usage.cpu_pressure_usec, pressure)} for a free core"
        cause, advice = _cpu_competition(record, outcome, samples)
        yield Finding(Code.CPU_PRESSURE, Severity.WARNING, text + cause, advice)
    pressure = _share(usage.io_pressure_usec, outcome)
    if pressure is not None and pressure >= _IO_PRESSURE:
        text = f"I/O bound: waited {_spent(usage.io_pressure_usec, pressure)} for the disk"
        advice = "use faster storage, or read and write less, in larger blocks"
        yield Finding(Code.IO_PRESSURE, Severity.WARNING, text, advice)
    pressure = _share(usage.memory_pressure_usec, outcome)
    if pressure is not None and pressure >= _MEMORY_PRESSURE:
        text = f"waited {_spent(usage.memory_pressure_usec, pressure)} for memory to be freed"
        yield Finding(Code.MEMORY_PRESSURE, Severity.WARNING, text, more_memory(record))
    yield from _paging(record, outcome, samples)


def _cpu_competition(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> tuple[str, str]:
    """Returns (addition to the text, advice). A job competes with itself if its threads fill its CPUs; others
    used the cores if each of its threads had one, or if it got little of a full machine."""
    cpus, threads = _available_cpus(record), outcome.usage.threads_peak
    used = (outcome.usage.cpu_total_usec or 0) / 1_000_000 / outcome.duration_s
    if cpus is not None:
        has_core_per_thread = threads is not None and threads <= cpus
        if has_core_per_thread or (used < _FEW_OF_ITS_CPUS * cpus and _is_machine_full(samples)):
            cause = "; other programs were using the cores"
            return cause, "run fewer jobs at once on this machine, or use another machine"
        if used < _MOST_OF_ITS_CPUS * cpus:
            return "", "run fewer jobs at once on this machine, or start fewer threads or processes"
    return "", "start fewer threads or processes, or run fewer jobs at once on this machine"


def _available_cpus(record: Record) -> int | None:
    attempt, cpus = record.attempt, record.job.requirements.cpus
    if attempt is not None and attempt.enforced_by.get("cpus", "").startswith(BY_AFFINITY) and cpus:
        return math.ceil(cpus)
    return None if attempt is None else attempt.cpu_count


def _is_machine_full(samples: Sequence[Sample]) -> bool:
    known = [sample for sample in samples if sample.host_cpu_total_usec is not None]
    busy = host_cpu_percent(known[0], known[-1]) if known else None
    return busy is not None and busy >= _FULL


def sizing_findings(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    yield from _request_above_capacity(record)
    yield from _limits_not_enforced(record)
    yield from _memory_size(record, outcome, samples)
    if outcome.usage.pids_limit_events and outcome.reason != "limit":
        limit = record.job.requirements.pids
        times = outcome.usage.pids_limit_events
        text = f"could not start a process {counted(times, 'time')}: its pids limit was reached"
        yield Finding(Code.PIDS_LIMIT, Severity.PROBLEM, text, f"--pids {2 * limit}" if limit else "")
    if outcome.duration_s >= _MIN_DURATION_S and outcome.usage.cpu_total_usec is not None:
        yield from _cpu_size(record, outcome, samples, outcome.usage.cpu_total_usec)


def _paging(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    swapped = max((sample.memory_swap_bytes or 0 for sample in samples), default=0)
    if swapped >= MIB:
        text = f"up to {format_bytes(swapped)} of its memory was swapped out, which is slow to read back"
        yield Finding(Code.SWAPPED, Severity.WARNING, text, more_memory(record))
    faults = outcome.usage.faults_major or 0
    if faults >= 1000 and faults / max(outcome.duration_s, 1.0) >= 100:
        text = f"waited {faults:,} times for a page to be read from disk"
        advice = "give it more memory to keep mapped files in the cache, or copy them to a faster disk"
        yield Finding(Code.MAJOR_FAULTS, Severity.INFO, text, advice)


def _limits_not_enforced(record: Record) -> Iterator[Finding]:
    if record.attempt is None or not record.job.enforce:
        return
    asked = record.job.requirements
    # All CPUs of the machine need no limit.
    cpus = asked.cpus if (asked.cpus or 0) < (record.attempt.cpu_count or float("inf")) else None
    limits = {"cpus": cpus, "memory": asked.memory_bytes, "pids": asked.pids}
    enforced = record.attempt.enforced_by
    missing = [name for name, limit in limits.items() if limit is not None and name not in enforced]
    if missing:
        options = ", ".join(f"--{name}" for name in missing)
        text = f"this machine could not enforce {options}"
        yield Finding(
            Code.LIMIT_NOT_ENFORCED, Severity.WARNING, text, "joblens doctor shows how to enable it"
        )
    elif cpus is not None and cpus % 1 and enforced["cpus"].startswith(BY_AFFINITY):
        only = counted(math.ceil(cpus), "whole CPU")
        text = f"this machine could not enforce --cpus {cpus:g}, only {only}"
        yield Finding(
            Code.LIMIT_NOT_ENFORCED, Severity.WARNING, text, "joblens doctor shows how to enable it"
        )


def _request_above_capacity(record: Record) -> Iterator[Finding]:
    """Finds requests above the machine's capacity: they limit nothing, and on a cluster the job would wait
    indefinitely."""
    if record.attempt is None:
        return
    asked, machine = record.job.requirements, record.attempt
    parts = []
    if asked.cpus is not None and machine.cpu_count is not None and asked.cpus > machine.cpu_count:
        parts.append(f"{asked.cpus:g} CPUs (it has {machine.cpu_count})")
    total = machine.memory_total_bytes
    if asked.memory_bytes is not None and total is not None and asked.memory_bytes > total:
        parts.append(f"{format_bytes(asked.memory_bytes)} of memory (it has {format_bytes(total)})")
    if asked.gpus is not None and machine.gpu_count is not None and asked.gpus > machine.gpu_count:
        parts.append(f"{counted(asked.gpus, 'GPU')} (it has {machine.gpu_count or 'none'})")
    if parts:
        text = f"requested more than this machine has: {', '.join(parts)}"
        advice = "request less, or use a larger machine"
        yield Finding(Code.MORE_THAN_THERE_IS, Severity.WARNING, text, advice)


def _memory_size(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    asked = record.job.requirements.memory_bytes
    # A container, or a process that joblens attached to, has a limit that joblens did not set.
    limit = asked if asked is not None else _limit_in_force(samples)
    peak = outcome.usage.memory_peak_bytes
    if not limit or peak is None or is_out_of_memory(outcome):
        return
    from joblens.analysis.sizing.amounts import memory_for
    from joblens.analysis.sizing.observations import memory_option

    share = 100 * peak / limit
    if share >= 90:
        used = f"{format_bytes(peak)} of memory, {share:.0f}% of the {format_bytes(limit)}"
        text = f"used up to {used} it {'may use' if asked is None else 'requested'}"
        yield Finding(Code.MEMORY_NEAR_LIMIT, Severity.WARNING, text, memory_option(peak))
        return
    if asked is None:
        return
    is_certain = "memory_peak_bytes" not in outcome.usage.lower_bounds
    if is_certain and _is_complete(outcome) and share <= 50 and asked - memory_for(peak) >= _MIN_MEMORY_SAVED:
        text = f"requested {format_bytes(asked)} of memory and never used more than {format_bytes(peak)}"
        yield Finding(Code.MEMORY_UNUSED, Severity.INFO, text, memory_option(peak))


def _limit_in_force(samples: Sequence[Sample]) -> int | None:
    limits = (sample.memory_limit_bytes for sample in reversed(samples))
    return next((limit for limit in limits if limit is not None), None)


def _cpu_size(
    record: Record, outcome: Outcome, samples: Sequence[Sample], cpu_usec: int
) -> Iterator[Finding]:
    # Requests are per node.
    mean = cpu_usec / outcome.duration_s / 1_000_000 / node_count(record)  # cores
    most = (peak_of(rates_over(samples, cpu_percent), mean * 100) or 0.0) / 100
    asked = record.job.requirements.cpus
    can_shrink = _is_complete(outcome) and asked is not None and asked >= 2
    if can_shrink and mean >= 0.8 and most <= 1.1:
        text = f"requested {asked:g} CPUs and used one: its work runs in one thread"
        advice = f"{_cpus_option(1)}, or use more threads"
        yield Finding(Code.ONE_CORE_ONLY, Severity.INFO, text, advice)
    elif can_shrink and asked is not None and most <= asked / 2:
        text = f"requested {asked:g} CPUs and never used more than {most:.1f} ({mean:.1f} on average)"
        yield Finding(Code.CPUS_UNUSED, Severity.INFO, text, _cpus_option(most))
    elif mean < 0.1 and not _explained_by_io(outcome) and not _worked_on_gpu(outcome):
        share = 100 * mean
        text = f"used {share:.1f}% of one core: it spent most of its time waiting"
        advice = "for the network, locks, sleep or another program: more CPUs will not help"
        yield Finding(Code.MOSTLY_WAITING, Severity.INFO, text, advice)


def _is_complete(outcome: Outcome) -> bool:
    """Returns False for a job that did not finish: it may have needed more later."""
    return outcome.status is Status.SUCCESS


def _more_cpus(cpus: float, usage: Usage) -> str:
    """Advises one CPU more, but no more than the job had threads."""
    advised = math.ceil(cpus + 1)
    threads = usage.threads_peak
    return _cpus_option(min(advised, threads) if threads is not None and threads > cpus else advised)


def _cpus_option(cpus: float) -> str:
    from joblens.analysis.sizing.observations import cpus_option  # most jobs need no advice

    return cpus_option(cpus)


def _explained_by_io(outcome: Outcome) -> bool:
    return (_share(outcome.usage.io_pressure_usec, outcome) or 0.0) >= _IO_PRESSURE


def _worked_on_gpu(outcome: Outcome) -> bool:
    return (outcome.usage.gpu_busy_usec or 0) >= _GPU_BUSY * outcome.duration_s * 1_000_000


def more_memory(record: Record, peak_bytes: int = 0) -> str:
    """Returns advice for a job with too little memory."""
    limit = record.job.requirements.memory_bytes if record.job.enforce else None
    if limit is None:
        return "run fewer jobs at once, raise the limit of the enclosing job or unit, or use a larger machine"
    from joblens.analysis.sizing.observations import more_memory_option

    return more_memory_option(limit, peak_bytes)


def _share(usec: int | None, outcome: Outcome) -> float | None:
    """Returns the share of the job's time in percent; None: unknown, or too short to matter."""
    if usec is None or usec < _MIN_WAIT_S * 1_000_000 or outcome.duration_s <= 0:
        return None
    return usec / outcome.duration_s / 10_000


def _spent(usec: int | None, share: float) -> str:
    # Several CPUs can be throttled at once, so their sum may exceed the job's time.
    part = f"{share:.0f}% of its time" if share <= 100 else "sum over its CPUs"
    return f"{format_duration((usec or 0) / 1_000_000)} ({part})"


# A slow start is long, absolutely and as a share, and differs clearly from the rest.
_LEAST_START_S = 5.0
_START_SHARE = 0.25
_QUIET = 0.2  # of what it uses later
_AT_WORK = 0.5
_MOSTLY = 0.8
_LEAST_LATER_PERCENT = 30.0
_LEAST_SPANS = 8  # rates between samples, to see a curve at all

# Starting a process costs some hundred page faults and one or two waits of its parent, with little work in
# between. Large allocations cause as many faults without waits; threads cause only waits.
_LEAST_CPU_S = 1.0
_SYSTEM_SHARE = 0.35
_FAULTS_PER_CPU_S = 30_000
_WAITS_PER_CPU_S = 200
_FAULTS_PER_WAIT = (10, 600)


def start_findings(outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    yield from _slow_start(outcome, samples)
    yield from _many_processes(outcome.usage)


def _slow_start(outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Finds jobs with little CPU use for a good part of their time, then a steady level."""
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
    at_work = next(index for index, (_, rate) in enumerate(spans) if rate >= _AT_WORK * later_percent)
    if at_work == 0:
        return
    start_s = spans[at_work - 1][0]
    start_percent = sum(rate for _, rate in spans[:at_work]) / at_work
    busy_share = sum(rate >= _AT_WORK * later_percent for _, rate in spans[at_work:]) / (len(spans) - at_work)
    share = start_s / outcome.duration_s if outcome.duration_s > 0 else 0.0
    if start_s < _LEAST_START_S or share < _START_SHARE:
        return
    if start_percent <= _QUIET * later_percent and busy_share >= _MOSTLY:
        text = (
            f"slow start: used {start_percent:.0f}% CPU in its first {format_duration(start_s)} "
            f"({100 * share:.0f}% of its time), {later_percent:.0f}% afterwards"
        )
        advice = "load less at start-up, cache prepared data, or do more per start"
        yield Finding(Code.SLOW_START, Severity.INFO, text, advice)


def _many_processes(usage: Usage) -> Iterator[Finding]:
    total, system = usage.cpu_total_usec, usage.cpu_system_usec
    faults, waits = usage.faults_minor, usage.context_switches_voluntary
    if total is None or system is None or faults is None or not waits or total < _LEAST_CPU_S * 1e6:
        return
    if usage.threads_peak is not None and usage.threads_peak > 2 * (usage.processes_peak or 1) + 2:
        return  # threads that wait for each other show the same numbers
    cpu_s = total / 1e6
    least, most = _FAULTS_PER_WAIT
    if (
        system >= _SYSTEM_SHARE * total
        and faults / cpu_s >= _FAULTS_PER_CPU_S
        and waits / cpu_s >= _WAITS_PER_CPU_S
        and least <= faults / waits <= most
    ):
        text = (
            f"{100 * system / total:.0f}% of its CPU time was spent in the kernel, with "
            f"{faults / cpu_s:,.0f} page faults and {waits / cpu_s:,.0f} waits per CPU second: "
            "it starts very many short processes"
        )
        advice = "do more per process: loop inside one program, pass many arguments per call, use fewer pipes"
        yield Finding(Code.MANY_PROCESSES, Severity.INFO, text, advice)
