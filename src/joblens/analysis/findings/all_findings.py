"""Everything a person should act on, from one ended job: why it ended, what held it up, what to ask for next
time, and how far its numbers can be trusted. Each code is explained in docs/findings.md."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from joblens.analysis.findings.codes import Code
from joblens.analysis.findings.efficiency import sizing_findings, waiting_findings
from joblens.analysis.findings.endings import ending_findings
from joblens.analysis.findings.starts import start_findings
from joblens.model.jobs.finding import Finding, Severity
from joblens.model.jobs.job import Job, Outcome, Record, Usage, is_of_workflow
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import MIB

_SMALL_MEMORY_BYTES = 16 * MIB
_KEYS = {
    "--memory ": "memory: ",
    "--cpus ": "num_cpus: ",
    "--timeout ": "runtime: ",
    "--gpus ": "num_gpus: ",
}
_SHORT = 20  # samples: too few for a trend
_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.INFO)
# What can be too low because a process was not followed. The rest (counters, energy, GPUs) has reasons of its
# own, which nobody can do anything about.
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
    """The gravest first. `record` has its outcome, with usage; findings in it are not looked at."""
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
        # What it would need next time is not what it used this time.
        found = [finding for finding in found if finding.code != Code.MEMORY_UNUSED]
    if is_of_workflow(record.job):
        found = [_in_words_of_the_file(finding) for finding in found]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def _growth(record: Record, samples: Sequence[Sample]) -> Iterator[Finding]:
    from joblens.analysis.findings.growth import growth_findings  # not for every start of joblens

    yield from growth_findings(record, samples)


def _gpus(job: Job, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    if any(sample.gpus is not None for sample in samples):
        from joblens.analysis.findings.gpu import gpu_findings  # most machines have none

        yield from gpu_findings(job, outcome, samples)


def _in_words_of_the_file(finding: Finding) -> Finding:
    """What is an option of a single command is a key of `resource_requirements` for a job of a workflow."""
    text, advice = finding.text, finding.advice
    for option, key in _KEYS.items():
        text, advice = text.replace(option, key), advice.replace(option, key)
    return replace(finding, text=text, advice=advice)


def _is_small_memory(usage: Usage, number: str) -> bool:
    """A process smaller than the launcher is never known exactly, and nobody plans by so little."""
    return number.startswith("memory_") and (getattr(usage, number) or 0) < _SMALL_MEMORY_BYTES


def _why_lower(record: Record, usage: Usage) -> tuple[str, str]:
    """-> (reason, advice)"""
    if record.job.attached:
        return "it was looked at from outside", "joblens run measures a command from its start to its end"
    is_in_group = record.attempt is not None and record.attempt.accounting.startswith("cgroup")
    if is_in_group and not _COUNTED_BY_GROUPS.isdisjoint(usage.lower_bounds):
        # A group misses no process: only its last reading can be missing.
        return (
            "the job's control group was gone before its last reading",
            "end jobs with joblens cancel: kill -9 of joblens or of a job's launcher can lose that reading",
        )
    return "not every process could be followed", "joblens doctor shows how to make them exact"


def _caveats(record: Record, usage: Usage) -> Iterator[Finding]:
    job = record.job
    names = list(
        dict.fromkeys(
            _FOLLOWED[number]
            for number in usage.lower_bounds
            if number in _FOLLOWED
            and not _is_small_memory(usage, number)
            # The group of a container is gone with the processes that would tell.
            and not (job.container is not None and number.startswith("io_"))
        )
    )
    if names:
        why, advice = _why_lower(record, usage)
        text = f"these may be higher than shown, as {why}: {', '.join(names)}"
        yield Finding(Code.LOWER_BOUNDS, Severity.INFO, text, advice)
    if usage.shared:
        text = "other measurements ran in the same process at the same time; parts may be counted in both"
        yield Finding(
            Code.SHARED, Severity.INFO, text, "measure one at a time, or run each as its own command"
        )
