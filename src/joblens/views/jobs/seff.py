"""Slurm efficiency report (seff), and the cluster's accounting of a job."""

from collections.abc import Sequence

from joblens.analysis.slurm.efficiency import MEASURED, Efficiency, next_time
from joblens.model.clusters.slurm_notation import slurm_clock
from joblens.model.jobs.details import ClusterAccount
from joblens.model.jobs.job import Record, Usage
from joblens.model.values.ids import short
from joblens.model.values.units import GIB, KIB, MIB, counted, format_bytes, format_duration
from joblens.views.jobs.summary import finding_lines
from joblens.views.text.numbers import UNKNOWN, seconds
from joblens.views.text.style import Palette, clean, wrap
from joblens.views.text.table import Column, render_table

_WASTED, _GOOD = 25.0, 75.0  # percent: poor below, good from
_COLUMNS = (
    Column("JOB"),
    Column("NAME", gives_way=True, keeps_end=True, goes=3),
    Column("STATE"),
    Column("ELAPSED", is_right=True),
    Column("TIME", is_right=True, goes=1),
    Column("CPU", is_right=True),
    Column("CPU EFF", is_right=True),
    Column("MEMORY", is_right=True),
    Column("MEM EFF", is_right=True),
    Column("BY", goes=2),
)


def render_seff(found: Efficiency, *, width: int, paint: Palette) -> list[str]:
    lines = [f"{name}: {value}" for name, value in _pairs(found, paint) if value]
    if found.state == "PENDING":
        lines.append(paint.paint("Pending: nothing used yet.", "dim"))
    elif found.is_running:
        lines.append(paint.paint("Running: numbers so far.", "dim"))
    for finding in found.findings:
        lines += finding_lines(finding, paint, width)
    return [*lines, *_next_time([found], width, paint)]


def _next_time(found: Sequence[Efficiency], width: int, paint: Palette) -> list[str]:
    advice = next_time(found)
    if advice.sbatch:
        lines = ["", f"Next time: {paint.paint(f'sbatch {advice.sbatch}', 'bold')}"]
    elif advice.keys:
        lines = ["", f"Next time, in the workflow's file: {paint.paint(advice.keys, 'bold')}"]
    else:
        return []
    for reason in advice.reasons:
        lines += [paint.paint(line, "dim") for line in wrap(reason, width, "  ")]
    return lines


def _pairs(found: Efficiency, paint: Palette) -> list[tuple[str, str]]:
    is_task = "_" in found.job_id
    cores = max(1, round(found.cpus / found.nodes)) if found.cpus else None
    return [
        ("Job ID", _job_id(found)),
        ("Array Job ID", clean(found.job_id) if is_task else ""),
        ("Cluster", clean(found.cluster)),
        ("User/Group", clean("/".join(word for word in (found.user, found.group) if word))),
        ("State", _state(found)),
        ("Cores", "1" if found.nodes == 1 and cores == 1 else ""),
        ("Nodes", "" if found.nodes == 1 and cores == 1 else str(found.nodes)),
        ("Cores per node", "" if found.nodes == 1 and cores == 1 else str(cores or "")),
        ("GPUs", str(found.gpus or "")),
        ("CPU Utilized", _cpu(found)),
        ("CPU Efficiency", _cpu_share(found, paint)),
        ("Job Wall-clock time", _wall(found)),
        ("Memory Utilized", _memory(found)),
        ("Memory Efficiency", _memory_share(found, paint)),
        ("joblens", _ours(found)),
    ]


def _job_id(found: Efficiency) -> str:
    ident = clean(found.raw_id if "_" in found.job_id and found.raw_id else found.job_id)
    return f"{ident} (Slurm allocation shared by several jobs)" if found.is_shared else ident


def _ours(found: Efficiency) -> str:
    """Returns the jobs of joblens in this Slurm job."""
    if found.jobs_inside:
        return counted(found.jobs_inside, "job")
    is_known = found.job_uuid and found.job_uuid != found.job_id
    return f"job {clean(found.name)}, {short(found.job_uuid)}" if is_known else ""


def _state(found: Efficiency) -> str:
    if found.is_running:
        return clean(found.state)
    notes = []
    if found.exit_code or (found.exit_code is not None and not found.signal):
        notes.append(f"exit code {found.exit_code}")
    elif found.signal:
        notes.append(f"killed by signal {found.signal}")
    if found.slurm_state:
        notes.append(f"Slurm: {clean(found.slurm_state)}")
    return clean(found.state) + (f" ({'; '.join(notes)})" if notes else "")


def _cpu(found: Efficiency) -> str:
    if found.cpu_usec is None:
        return UNKNOWN
    text = ("≥" if found.is_cpu_least else "") + slurm_clock(found.cpu_usec / 1e6)
    if found.cpu_source != MEASURED:
        return text
    beside = "" if found.slurm_cpu_usec is None else f"; Slurm: {slurm_clock(found.slurm_cpu_usec / 1e6)}"
    return f"{text} (measured by joblens{beside})"


def _cpu_share(found: Efficiency, paint: Palette) -> str:
    whole = found.core_walltime_s
    if found.cpu_percent is None or whole is None:
        return UNKNOWN
    return f"{_share(found.cpu_percent, paint)} of {slurm_clock(whole)} core-walltime"


def _wall(found: Efficiency) -> str:
    if found.elapsed_s is None:
        return UNKNOWN
    limit = f" of {slurm_clock(found.time_limit_s)}" if found.time_limit_s else ""
    return f"{slurm_clock(found.elapsed_s)}{limit}"


def _memory(found: Efficiency) -> str:
    if found.memory_bytes is None:
        return UNKNOWN
    text = ("≥" if found.is_memory_least else "") + memory_text(found.memory_bytes)
    notes = []
    if found.nodes > 1:
        notes.append("on the node that used the most")
    if found.memory_source == MEASURED:
        beside = (
            "" if found.slurm_memory_bytes is None else f"; Slurm: {memory_text(found.slurm_memory_bytes)}"
        )
        notes.append(f"measured by joblens{beside}")
    elif found.is_memory_estimated:
        notes.append("sampled by Slurm; sum of tasks and steps")
    else:
        notes.append("sampled by Slurm")
    return f"{text} ({', '.join(notes)})"


def _memory_share(found: Efficiency, paint: Palette) -> str:
    if found.memory_percent is None or found.asked_memory_bytes is None:
        return UNKNOWN
    asked = memory_text(found.asked_memory_bytes)
    return f"{_share(found.memory_percent, paint)} of {asked}{'/node' if found.nodes > 1 else ''}"


def _share(percent: float, paint: Palette) -> str:
    colour = "yellow" if percent < _WASTED else "green" if _GOOD <= percent <= 100 else ""
    text = f"{percent:.2f}%"
    return paint.paint(text, colour) if colour else text


def memory_text(size: float) -> str:
    """Formats as seff does: 1.25 GB, powers of 1024."""
    for unit, factor in (("GB", GIB), ("MB", MIB), ("KB", KIB)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} B"


def render_seff_table(found: Sequence[Efficiency], *, width: int, paint: Palette) -> list[str]:
    """Formats an array: one line per task, and advice for all tasks."""
    lines = render_table(_COLUMNS, [_row(one, paint) for one in found], width, paint)
    return [*lines, *_next_time(found, width, paint)]


def _row(found: Efficiency, paint: Palette) -> list[str]:
    memory = UNKNOWN if found.memory_bytes is None else memory_text(found.memory_bytes)
    return [
        clean(found.job_id),
        clean(found.name),
        _state(found),
        UNKNOWN if found.elapsed_s is None else slurm_clock(found.elapsed_s),
        UNKNOWN if found.time_percent is None else f"{found.time_percent:.0f}%",
        UNKNOWN if found.cpu_usec is None else slurm_clock(found.cpu_usec / 1e6),
        UNKNOWN if found.cpu_percent is None else _share(found.cpu_percent, paint),
        ("≥" if found.is_memory_least and found.memory_bytes is not None else "") + memory,
        UNKNOWN if found.memory_percent is None else _share(found.memory_percent, paint),
        "joblens" if MEASURED in (found.memory_source, found.cpu_source) else "Slurm",
    ]


_INSIGNIFICANT = 0.05  # relative difference that is not mentioned


def account_pairs(account: ClusterAccount, record: Record) -> Sequence[tuple[str, str]]:
    usage = None if record.outcome is None or account.is_shared else record.outcome.usage
    return [
        ("job", clean(account.job_id) + (" (an allocation)" if account.is_shared else "")),
        ("state", _account_state(account)),
        ("nodes", clean(", ".join(account.nodes))),
        ("CPUs allocated", UNKNOWN if account.allocated_cpus is None else str(account.allocated_cpus)),
        ("waited", _waited(account)),
        ("took", _took(account)),
        ("CPU time", _account_cpu(account, usage)),
        ("largest memory", _account_memory(account, usage)),
        ("read by calls", format_bytes(account.read_bytes)),
        ("written by calls", format_bytes(account.written_bytes)),
        ("more", f"joblens seff {clean(account.job_id)}"),
    ]


def _account_state(account: ClusterAccount) -> str:
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


def _account_cpu(account: ClusterAccount, usage: Usage | None) -> str:
    if account.cpu_usec is None:
        return UNKNOWN
    ours = None if usage is None else usage.cpu_total_usec
    beside = f" (joblens: {seconds(ours)})" if ours is not None and _differ(account.cpu_usec, ours) else ""
    return f"{seconds(account.cpu_usec)}{beside}"


def _account_memory(account: ClusterAccount, usage: Usage | None) -> str:
    if account.max_rss_bytes is None:
        return UNKNOWN
    text = f"≥{format_bytes(account.max_rss_bytes)}"
    if account.asked_memory_bytes is not None:
        text += f" of {format_bytes(account.asked_memory_bytes)}"
    ours = None if usage is None else usage.memory_peak_bytes
    return f"{text} (joblens: {format_bytes(ours)})" if _differ(account.max_rss_bytes, ours) else text


def account_notes(account: ClusterAccount, record: Record) -> list[str]:
    """Explains differences between the numbers of Slurm and of joblens."""
    if account.is_shared:
        return ["These numbers cover all jobs of the allocation; the numbers of joblens are exact per job."]
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
        files = ", and mapped files" if "memory" in more else ""
        notes.append(f"More {' and '.join(more)} in Slurm: includes the script, the agent of joblens{files}.")
    if less:
        notes.append(f"Less {' and '.join(less)} in Slurm: it misses peaks between its samples.")
    return notes


def _differ(theirs: int | None, ours: int | None) -> bool:
    if theirs is None or ours is None:
        return False
    return abs(theirs - ours) > _INSIGNIFICANT * max(theirs, ours)
