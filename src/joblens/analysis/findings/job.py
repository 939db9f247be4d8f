"""Job findings: reasons of its end, causes of waiting, and better requests."""

import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from joblens.analysis.findings.efficiency import (
    more_memory,
    sizing_findings,
    start_findings,
    waiting_findings,
)
from joblens.model.jobs.job import (
    LOGOUT,
    SHUTDOWN,
    Code,
    Finding,
    Job,
    Outcome,
    Record,
    Severity,
    Status,
    Usage,
    is_of_workflow,
)
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import short
from joblens.model.values.units import MIB, counted, format_bytes, format_duration

if TYPE_CHECKING:
    from joblens.model.delivery import FormerWorker

_LAST_LINE_LENGTH = 200
_FOREIGN_KILL = "sent by neither joblens nor the kernel's out-of-memory killer, perhaps by {}"
_SIGNAL_ADVICE = {
    signal.SIGKILL: "not sent by joblens: check the kernel log for its out-of-memory killer",
    signal.SIGSEGV: "invalid memory access: run it in a debugger, or with core dumps enabled",
    signal.SIGBUS: "a mapped file may have been truncated, or shared memory is full (df /dev/shm)",
    signal.SIGILL: "it may have been built for another processor",
    signal.SIGABRT: "it aborted: the reason is on its standard error",
    signal.SIGFPE: "division by zero or integer overflow",
    signal.SIGPIPE: "the reader of its output exited",
    signal.SIGXCPU: "a CPU time limit (ulimit -t) was reached",
    signal.SIGXFSZ: "a file size limit (ulimit -f) was reached",
}


_ENDINGS = (
    *(Code.CANCELLED, Code.LOST, Code.TIMED_OUT, Code.SIGNAL, Code.EXIT_CODE, Code.NOT_STARTED),
    *(Code.OUT_OF_MEMORY, Code.PIDS_LIMIT, Code.STOPPED_BY_SYSTEMD),
)


def ending_findings(record: Record, outcome: Outcome) -> Iterator[Finding]:
    finding = _why(record, outcome)
    if finding is not None:
        yield finding
    kills = outcome.usage.oom_kills
    if kills and outcome.reason != "out-of-memory":
        yield Finding(
            Code.CHILD_OUT_OF_MEMORY,
            Severity.WARNING,
            f"the kernel killed {counted(kills, 'process')} of the job: out of memory; the job continued",
            more_memory(record, outcome.usage.memory_peak_bytes or 0),
        )
    if outcome.leftovers:
        yield Finding(
            Code.LEFTOVERS,
            Severity.WARNING,
            f"{counted(outcome.leftovers, 'process')} outlived the main process and"
            f" {'was' if outcome.leftovers == 1 else 'were'} killed",
            "wait for started processes before exiting (in a shell: wait)",
        )


def with_ending(job: Job, outcome: Outcome) -> Outcome:
    """Returns the outcome with the finding for its ending, instead of findings for other endings."""
    finding = _why(Record(status=outcome.status, job=job, outcome=outcome), outcome)
    others = tuple(one for one in outcome.findings if one.code not in _ENDINGS)
    return replace(outcome, findings=(*((finding,) if finding is not None else ()), *others))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal" if number > 31 else "unknown"


def _why(record: Record, outcome: Outcome) -> Finding | None:  # noqa: PLR0911  (one return per kind of end)
    if outcome.status is Status.TIMEOUT:
        return _timed_out(record, outcome)
    if outcome.status is Status.CANCELLED and outcome.reason in (LOGOUT, SHUTDOWN):
        return _stopped_by_systemd(record, outcome)
    if outcome.status is Status.CANCELLED:
        return _cancelled(outcome)
    if outcome.status is Status.LOST:
        text = outcome.error or "lost with the process that ran it; its result is unknown"
        return Finding(Code.LOST, Severity.PROBLEM, text, f"run it again: {_rerun(record)}")
    if outcome.reason == "not-started":
        return Finding(Code.NOT_STARTED, Severity.PROBLEM, outcome.error or "it could not be started")
    if outcome.reason == "out-of-memory":
        return _out_of_memory(record, outcome)
    if outcome.reason == "limit":
        return _pids_limit(record, outcome)
    if outcome.signal is not None and outcome.status is not Status.SUCCESS:
        return _signal(record, outcome, outcome.signal)
    if outcome.exit_code:
        return _exit_code(record, outcome, outcome.exit_code)
    return None


def _cancelled(outcome: Outcome) -> Finding:
    from joblens.model.clusters.slurm import CANCELLED_REASON

    how = outcome.error if outcome.reason == CANCELLED_REASON and outcome.error else "cancelled"
    text = f"{how} after {format_duration(outcome.duration_s)}"
    return Finding(Code.CANCELLED, Severity.INFO, text)


def _stopped_by_systemd(record: Record, outcome: Outcome) -> Finding:
    text = f"{outcome.error} after {format_duration(outcome.duration_s)}"
    advice = f"run it again: {_rerun(record)}"
    if outcome.reason == LOGOUT:
        advice += "; to keep jobs running after logout: loginctl enable-linger"
    return Finding(Code.STOPPED_BY_SYSTEMD, Severity.WARNING, text, advice)


def _rerun(record: Record) -> str:
    run = record.job.run
    if run is None or run.is_command:
        return f"joblens rerun {_ident(record)}"
    return f"joblens resume {run.run_uuid[:8]}"


def _timed_out(record: Record, outcome: Outcome) -> Finding:
    from joblens.analysis.sizing.observations import more_time_option
    from joblens.model.clusters.slurm import WALLTIME_REASON

    if outcome.reason == WALLTIME_REASON:
        return Finding(
            Code.TIMED_OUT,
            Severity.PROBLEM,
            f"{outcome.error}; the job had run for {format_duration(outcome.duration_s)}",
            "give it a longer runtime in the file, its scheduler a longer walltime, or the run --walltime",
        )
    allowed_s = record.job.requirements.timeout_s
    limit = "" if allowed_s is None else f" (time limit {format_duration(allowed_s)})"
    had_s = allowed_s or outcome.duration_s
    return Finding(
        Code.TIMED_OUT,
        Severity.PROBLEM,
        f"timed out after {format_duration(outcome.duration_s)}{limit}",
        f"it needs more than {format_duration(had_s)}: try {more_time_option(had_s, outcome.duration_s)}",
    )


def _out_of_memory(record: Record, outcome: Outcome) -> Finding:
    limit = record.job.requirements.memory_bytes if record.job.enforce else None
    by_kernel = bool(outcome.usage.oom_kills)
    who = "the kernel" if by_kernel else "joblens"
    why = (
        "because the machine or an enclosing limit ran out of memory"
        if limit is None
        else f"at its memory limit of {format_bytes(limit)}"
    )
    return Finding(
        Code.OUT_OF_MEMORY,
        Severity.PROBLEM,
        f"out of memory: killed by {who} {why}",
        more_memory(record, outcome.usage.memory_peak_bytes or 0),
    )


def _pids_limit(record: Record, outcome: Outcome) -> Finding:
    limit = record.job.requirements.pids
    allowed = "" if limit is None else f" of {limit}"
    advice = "" if limit is None else f"--pids {2 * limit}"
    text = outcome.error or f"it started more processes than its limit{allowed}"
    return Finding(Code.PIDS_LIMIT, Severity.PROBLEM, text, advice)


def _signal(record: Record, outcome: Outcome, number: int) -> Finding:
    text = f"killed by signal {number} ({signal_name(number)}) after {format_duration(outcome.duration_s)}"
    known = _SIGNAL_ADVICE.get(number)  # type: ignore[call-overload]
    if number == signal.SIGKILL and _has_no_oom_kill(outcome):
        in_container = record.job.container is not None or record.job.attached.startswith("container ")
        known = _FOREIGN_KILL.format("the engine's kill or stop" if in_container else "a user")
    return Finding(Code.SIGNAL, Severity.PROBLEM, text + _last_line(outcome), known or _see_stderr(record))


def _has_no_oom_kill(outcome: Outcome) -> bool:
    """Returns whether the job's control group was read after its end and counted no such kill."""
    return outcome.usage.oom_kills == 0 and "oom_kills" not in outcome.usage.lower_bounds


def _exit_code(record: Record, outcome: Outcome, code: int) -> Finding:
    text = f"exit code {code}{_meaning(code)} after {format_duration(outcome.duration_s)}"
    return Finding(Code.EXIT_CODE, Severity.PROBLEM, text + _last_line(outcome), _see_stderr(record))


def _meaning(code: int) -> str:
    """Returns the meaning of the code in shells."""
    if code == 126:
        return " (a command could not be executed)"
    if code == 127:
        return " (a command was not found)"
    if 128 < code <= 192:
        return f" (a process was killed by signal {code - 128}, {signal_name(code - 128)})"
    return ""


def _last_line(outcome: Outcome) -> str:
    lines = outcome.stderr_tail.strip().splitlines()
    if not lines:
        return ""
    line = lines[-1].strip()
    return f"; last line on stderr: {line[:_LAST_LINE_LENGTH]}{'…' if len(line) > _LAST_LINE_LENGTH else ''}"


def _see_stderr(record: Record) -> str:
    if record.job.attached:
        return ""  # its output is not recorded
    outcome = record.outcome
    if outcome is not None and outcome.stderr_bytes == 0:
        return f"joblens logs {_ident(record)}" if outcome.stdout_bytes else ""
    return f"joblens logs {_ident(record)} --stderr"


def _ident(record: Record) -> str:
    return short(record.job.uuid)


_SMALL_MEMORY_BYTES = 16 * MIB
_KEYS = {
    "--memory ": "memory: ",
    "--cpus ": "num_cpus: ",
    "--timeout ": "runtime: ",
    "--gpus ": "num_gpus: ",
}
_SHORT = 20  # samples: too few for a trend
_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.INFO)
# Numbers that are too low if a process was missed. Other lower bounds (counters, energy, GPUs) have reasons
# that users cannot change.
_FOLLOWED = {
    "cpu_total_usec": "CPU time",
    "cpu_user_usec": "CPU time",
    "cpu_system_usec": "CPU time",
    "memory_peak_bytes": "peak memory",
    "memory_kernel_peak_bytes": "peak memory",
    "memory_mean_bytes": "mean memory",
    "memory_largest_process_bytes": "largest process",
    "faults_minor": "page faults",
    "faults_major": "page faults",
    "io_read_bytes": "disk I/O",
    "io_write_bytes": "disk I/O",
    "io_call_read_bytes": "I/O calls",
    "io_call_write_bytes": "I/O calls",
    "io_call_reads": "I/O calls",
    "io_call_writes": "I/O calls",
    "network_rx_bytes": "network",
    "network_tx_bytes": "network",
    "network_rx_packets": "network",
    "network_tx_packets": "network",
}
_COUNTED_BY_GROUPS = frozenset({"cpu_total_usec", "network_rx_bytes"})


def findings_for(record: Record, samples: Sequence[Sample]) -> tuple[Finding, ...]:
    """Returns findings, the most severe first; () without an outcome."""
    outcome = record.outcome
    if outcome is None:
        return ()
    found = [
        *ending_findings(record, outcome),
        *waiting_findings(record, outcome, samples),
        *(_growth(record, samples) if len(samples) > _SHORT or outcome.reason == "out-of-memory" else ()),
        *start_findings(outcome, samples),
        *sizing_findings(record, outcome, samples),
        *_gpus(record.job, outcome, samples),
        *(_caveats(record, outcome.usage) if outcome.usage.lower_bounds or outcome.usage.shared else ()),
    ]
    if not found:
        return ()
    if any(finding.code == Code.LEAK_SUSPECTED for finding in found):
        # A leaking job may need more memory next time.
        found = [finding for finding in found if finding.code != Code.MEMORY_UNUSED]
    if is_of_workflow(record.job):
        found = [_with_file_keys(finding) for finding in found]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def _growth(record: Record, samples: Sequence[Sample]) -> Iterator[Finding]:
    from joblens.analysis.findings.memory_growth import growth_findings  # imported only if needed

    yield from growth_findings(record, samples)


def _gpus(job: Job, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    if any(sample.gpus is not None for sample in samples):
        from joblens.analysis.findings.gpu import gpu_findings  # most machines have no GPU

        yield from gpu_findings(job, outcome, samples)


def _with_file_keys(finding: Finding) -> Finding:
    """Replaces options of `run` by keys of `resource_requirements` for a job of a workflow."""
    text, advice = finding.text, finding.advice
    for option, key in _KEYS.items():
        text, advice = text.replace(option, key), advice.replace(option, key)
    return replace(finding, text=text, advice=advice)


def _is_small_memory(usage: Usage, number: str) -> bool:
    """Returns whether the number is too small to matter: processes below the launcher's size are inexact."""
    return number.startswith("memory_") and (getattr(usage, number) or 0) < _SMALL_MEMORY_BYTES


def _why_lower(record: Record, usage: Usage) -> tuple[str, str]:
    """Returns (reason, advice)."""
    if record.job.attached:
        return "joblens attached to it", "joblens run measures a command from start to end"
    is_in_group = record.attempt is not None and record.attempt.accounting.startswith("cgroup")
    if is_in_group and not _COUNTED_BY_GROUPS.isdisjoint(usage.lower_bounds):
        # A control group misses no process; only its last reading can be missing.
        return (
            "the job's control group was removed before the last reading",
            "end jobs with joblens cancel: kill -9 of joblens or a job's launcher can lose the last reading",
        )
    return "some processes may have been missed", "joblens doctor shows how to make them exact"


def _caveats(record: Record, usage: Usage) -> Iterator[Finding]:
    job = record.job
    names = list(
        dict.fromkeys(
            _FOLLOWED[number]
            for number in usage.lower_bounds
            if number in _FOLLOWED
            and not _is_small_memory(usage, number)
            # The cgroup of a container is removed with its processes.
            and not (job.container is not None and number.startswith("io_"))
        )
    )
    if names:
        why, advice = _why_lower(record, usage)
        text = f"these may be higher than shown, because {why}: {', '.join(names)}"
        yield Finding(Code.LOWER_BOUNDS, Severity.INFO, text, advice)
    if usage.shared:
        text = "other measurements ran in the same process at the same time; some usage may be counted twice"
        yield Finding(
            Code.SHARED, Severity.INFO, text, "measure one at a time, or run each as its own command"
        )


def retried_findings(fence: int, former: "FormerWorker | None") -> tuple[Finding, ...]:
    """Returns the finding for a job that an earlier worker did not finish. `fence`: number of this
    attempt."""
    if former is None:
        return ()
    what = "stopped before the job ended" if former.gave_back else "was lost while running the job"
    text = f"worker {former.name} {what}; this is attempt {fence}"
    advice = "if it must not run twice, submit it with --retry-lost never"
    return (Finding(Code.TAKEN_UP_AGAIN, Severity.WARNING, text, advice),)
