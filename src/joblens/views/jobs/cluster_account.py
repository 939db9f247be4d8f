"""What the cluster itself says of a job, beside our numbers."""

from collections.abc import Sequence

from joblens.model.jobs.details import ClusterAccount
from joblens.model.jobs.job import Record, Usage
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.text.numbers import UNKNOWN, seconds
from joblens.views.text.style import clean

_ALIKE = 0.05  # a difference that needs no words


def account_pairs(account: ClusterAccount, record: Record) -> Sequence[tuple[str, str]]:
    usage = None if record.outcome is None or account.is_shared else record.outcome.usage
    return [
        ("job", clean(account.job_id) + (" (an allocation)" if account.is_shared else "")),
        ("state", _state(account)),
        ("nodes", clean(", ".join(account.nodes))),
        ("CPUs given", UNKNOWN if account.allocated_cpus is None else str(account.allocated_cpus)),
        ("waited", _waited(account)),
        ("took", _took(account)),
        ("CPU time", _cpu(account, usage)),
        ("largest memory", _memory(account, usage)),
        ("read by calls", format_bytes(account.read_bytes)),
        ("written by calls", format_bytes(account.written_bytes)),
        ("more", f"joblens seff {clean(account.job_id)}"),
    ]


def _state(account: ClusterAccount) -> str:
    by = account.fields.get("cancelled_by", "")
    words = [
        account.state,
        f"by {by}" if by else "",
        f"exit code {account.exit_code}" if account.exit_code else "",
    ]
    return clean(", ".join(word for word in words if word))


def _waited(account: ClusterAccount) -> str:
    if account.submitted_at_us is None or account.started_at_us is None:
        return UNKNOWN
    return format_duration(max(0, account.started_at_us - account.submitted_at_us) / 1e6)


def _took(account: ClusterAccount) -> str:
    if account.elapsed_s is None:
        return UNKNOWN
    limit = "" if account.time_limit_s is None else f" of {format_duration(account.time_limit_s)}"
    return f"{format_duration(account.elapsed_s)}{limit}"


def _cpu(account: ClusterAccount, usage: Usage | None) -> str:
    if account.cpu_usec is None:
        return UNKNOWN
    ours = None if usage is None else usage.cpu_total_usec
    beside = f" (ours: {seconds(ours)})" if ours is not None and _differ(account.cpu_usec, ours) else ""
    return f"{seconds(account.cpu_usec)}{beside}"


def _memory(account: ClusterAccount, usage: Usage | None) -> str:
    if account.max_rss_bytes is None:
        return UNKNOWN
    text = f"≥{format_bytes(account.max_rss_bytes)}"
    if account.asked_memory_bytes is not None:
        text += f" of {format_bytes(account.asked_memory_bytes)}"
    ours = None if usage is None else usage.memory_peak_bytes
    return f"{text} (ours: {format_bytes(ours)})" if _differ(account.max_rss_bytes, ours) else text


def account_notes(account: ClusterAccount, record: Record) -> list[str]:
    """Why Slurm's numbers are not ours, where they are not."""
    if account.is_shared:
        return [
            "It is an allocation: these are numbers of all jobs that ran in it, one by one ours are exact."
        ]
    usage = None if record.outcome is None else record.outcome.usage
    if usage is None:
        return []
    more: list[str] = []
    less: list[str] = []
    for theirs, ours, name in (
        (account.cpu_usec, usage.cpu_total_usec, "CPU time"),
        (account.max_rss_bytes, usage.memory_peak_bytes, "memory"),
    ):
        if _differ(theirs, ours):
            (more if (theirs or 0) > (ours or 0) else less).append(name)
    notes = []
    if more:
        files = ", and files that are mapped count as memory" if "memory" in more else ""
        notes.append(f"More {' and '.join(more)}: the script and the agent beside the job are in it{files}.")
    if less:
        notes.append(f"Less {' and '.join(less)}: Slurm looks now and then, and misses what is between.")
    return notes


def _differ(theirs: int | None, ours: int | None) -> bool:
    if theirs is None or ours is None:
        return False
    return abs(theirs - ours) > _ALIKE * max(theirs, ours)
