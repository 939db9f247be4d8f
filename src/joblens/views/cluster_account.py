"""What the cluster itself says of a job, beside our numbers."""

from collections.abc import Sequence

from joblens.model.details import ClusterAccount
from joblens.model.job import Record, Usage
from joblens.model.units import format_bytes, format_duration
from joblens.views.numbers import UNKNOWN, seconds
from joblens.views.style import clean

_ALIKE = 0.05  # a difference that needs no words
_OTHER_THINGS = "the script and the agent beside the job are in it"


def account_pairs(account: ClusterAccount, record: Record) -> Sequence[tuple[str, str]]:
    usage = None if record.outcome is None or account.is_shared else record.outcome.usage
    return [
        ("job", _job(account)),
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


def _job(account: ClusterAccount) -> str:
    shared = " (an allocation: what follows is of all jobs that ran in it)" if account.is_shared else ""
    return f"{clean(account.job_id)}{shared}"


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
    why = _OTHER_THINGS if ours is not None and account.cpu_usec > ours else "its looks missed some processes"
    return seconds(account.cpu_usec) + _difference(account.cpu_usec, ours, seconds(ours), why)


def _memory(account: ClusterAccount, usage: Usage | None) -> str:
    if account.max_rss_bytes is None:
        return UNKNOWN
    ours = None if usage is None else usage.memory_peak_bytes
    if ours is not None and account.max_rss_bytes > ours:
        why = f"mapped files count there, and {_OTHER_THINGS}"
    else:
        why = "it looks now and then, and misses what is between"
    text = f"≥{format_bytes(account.max_rss_bytes)}"
    if account.asked_memory_bytes is not None:
        text += f" of {format_bytes(account.asked_memory_bytes)}"
    return text + _difference(account.max_rss_bytes, ours, format_bytes(ours), why)


def _difference(theirs: int, ours: int | None, shown: str, why: str) -> str:
    if ours is None or abs(theirs - ours) <= _ALIKE * max(theirs, ours):
        return ""
    return f" (ours: {shown}; {why})"
