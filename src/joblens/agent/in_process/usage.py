"""What a finished in-process measurement used, each number with its source and how far it can be trusted."""

import resource

from joblens.agent.in_process.instruments import NUMBERS
from joblens.agent.in_process.window import Window
from joblens.analysis.findings.codes import Code
from joblens.analysis.numbers.memory_peak import UNRECLAIMABLE, Mark, step_peak
from joblens.analysis.numbers.usage import mean_unreclaimable
from joblens.model.jobs.finding import Finding, Severity
from joblens.model.jobs.job import USAGE_NUMBERS, Usage
from joblens.probes.proc.own_tree import Level
from joblens.probes.proc.processes import IO_FIELDS

_KIB = 1024
_NOTICEABLE_USEC = 20_000  # CPU below this is not worth a finding
_NOT_ASKED = "not asked for"
_NO_GROUP = "the host program's control group holds more than this measurement"


def usage_of(window: Window, level: Level, *, has_children: bool) -> Usage:
    """`level` as it stood at the end; `has_children`: some were alive then."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    numbers: dict[str, int | None] = {
        "cpu_total_usec": window.used.cpu_usec,
        "cpu_user_usec": min(window.used.cpu_user_usec, window.used.cpu_usec),
        "cpu_system_usec": max(0, window.used.cpu_usec - window.used.cpu_user_usec),
        "faults_minor": window.used.faults_minor,
        "faults_major": window.used.faults_major,
        "memory_mean_bytes": _mean_memory(window),
        "memory_file_peak_bytes": window.file_peak_bytes,
        "processes_peak": window.processes_peak,
        "threads_peak": window.threads_peak,
        "open_files_peak": window.open_files_peak,
        **{name: getattr(window.used, name) for name in IO_FIELDS},
    }
    lower = _lower_counters(window)
    has_waited = waited.ru_minflt > window.base_waited.ru_minflt
    lower += _add_memory(numbers, window, level, waited, has_waited=has_waited)
    if has_waited or has_children:
        lower.append("processes_peak")
    has_switches = not (has_children or window.had_children or window.rivals)
    if has_switches:
        numbers |= _context_switches(window, waited)
    unknown = {
        name: _NOT_ASKED if name in NUMBERS else _NO_GROUP
        for name in USAGE_NUMBERS
        if numbers.get(name) is None
    }
    if not has_switches:
        for name in ("context_switches_voluntary", "context_switches_involuntary"):
            unknown[name] = "told by the kernel only of processes that were waited for, and not by thread"
    usage = Usage(
        **{name: value for name, value in numbers.items() if value is not None},
        sources=_sources(window, has_switches=has_switches),
        unknown=unknown,
        lower_bounds=tuple(lower),
        estimates=(),
        memory_peak_basis=UNRECLAIMABLE,
        shared=bool(window.rivals) or _is_beside_earlier_children(window),
    )
    return usage if window.instruments is None else window.instruments.add_to(usage, window.kept)


def findings_of(window: Window) -> tuple[Finding, ...]:
    """Said only where numbers could not be told apart."""
    said: list[str] = []
    if window.has_rival_on_thread:
        said.append("another measurement ran on the same thread at the same time, so both hold its CPU time")
    if window.estimated_usec > _NOTICEABLE_USEC:
        said.append(
            f"{window.estimated_usec / 1e6:.2f} s of child processes' CPU time is an estimate:"
            " children of overlapping measurements ended together"
        )
    if window.unclaimed_usec > _NOTICEABLE_USEC:
        said.append(
            f"{window.unclaimed_usec / 1e6:.2f} s of CPU time of threads without a measurement"
            " during the overlap is in no record"
        )
    if window.has_thread_ended:
        said.append("the thread it was started on ended before it did")
    if not window.rivals and _is_beside_earlier_children(window):
        said.append("child processes of the enclosing measurement were running when it began")
    if not said:
        return ()
    return (
        Finding(
            code=Code.SHARED,
            severity=Severity.INFO,
            text="Measurements overlapped in one process: " + "; ".join(said) + ".",
            advice="Run such work as a command of its own (joblens.run) to have it counted apart.",
        ),
    )


def _mean_memory(window: Window) -> int:
    """Unlike a job that is launched, a host program is all there at its first sample and at its last."""
    return mean_unreclaimable(window.kept, window.kept) or 0


def _lower_counters(window: Window) -> list[str]:
    if not window.rivals:
        return []
    # I/O of children that were waited for is added to the process as a whole.
    lower = [*IO_FIELDS]
    if window.unclaimed_usec > _NOTICEABLE_USEC or window.has_thread_ended:
        lower += ["cpu_total_usec", "cpu_user_usec", "cpu_system_usec", "faults_minor", "faults_major"]
    return lower


def _add_memory(
    numbers: dict[str, int | None],
    window: Window,
    level: Level,
    waited: resource.struct_rusage,
    *,
    has_waited: bool,
) -> list[str]:
    """-> what is only a lower bound."""
    own_bytes, own_is_exact = window.own_bytes(level)
    largest = max(window.largest_bytes, own_bytes)
    is_exact, spike_bytes = own_is_exact, 0
    # A child's own figure begins with the size of the process it was forked from, which is us: it is the
    # child's only when it is above what we ever were. And it is the largest of all children ever waited for.
    child_bytes = waited.ru_maxrss * _KIB
    if child_bytes > level.own_peak_bytes and waited.ru_maxrss > window.base_waited.ru_maxrss:
        largest, is_exact = max(largest, child_bytes), True
        # The files that it mapped are known of a child that was seen.
        spike = step_peak(window.child_mark, Mark(child_bytes))
        spike_bytes = child_bytes if spike is None else spike.least
    numbers["memory_largest_process_bytes"] = largest
    numbers["memory_peak_bytes"] = max(window.peak_bytes, spike_bytes)
    lower = [] if is_exact else ["memory_largest_process_bytes"]
    was_alone = window.processes_peak == 1 and not has_waited
    if not (is_exact and was_alone) or window.peak_is_lower_bound:
        lower.append("memory_peak_bytes")
    return lower


def _context_switches(window: Window, waited: resource.struct_rusage) -> dict[str, int | None]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "context_switches_voluntary": own.ru_nvcsw
        + waited.ru_nvcsw
        - window.base_own.ru_nvcsw
        - window.base_waited.ru_nvcsw,
        "context_switches_involuntary": own.ru_nivcsw
        + waited.ru_nivcsw
        - window.base_own.ru_nivcsw
        - window.base_waited.ru_nivcsw,
    }


def _is_beside_earlier_children(window: Window) -> bool:
    return bool(window.enclosing) and window.had_children


def _sources(window: Window, *, has_switches: bool) -> dict[str, str]:
    if window.rivals:
        cpu = "CPU clock of its thread and of the children that thread started, while others overlapped"
        faults = "/proc/self/task/TID/stat and its children, while others overlapped"
        io = "/proc/self/task/TID/io and living children, while others overlapped"
    else:
        cpu = faults = "getrusage of the process and of children waited for; living children's CPU clocks"
        faults = "getrusage of the process and of children waited for; /proc/PID/stat of living children"
        io = "/proc/self/io, which takes over what is waited for, and /proc/PID/io of living children"
    memory = "/proc/PID/status of the host program and its descendants"
    sources = {
        "cpu": cpu,
        "faults": faults,
        "io": io,
        "io_calls": io,
        "memory_peak": f"samples of {memory}, high-water marks where they rose, less file pages",
        "memory_file_peak": f"RssFile in {memory}, the largest of one process",
        "memory_largest_process": f"high-water marks in {memory}, getrusage of children",
        "memory_parts": memory,
        "processes": "/proc/PID/task/TID/children",
        "threads": "/proc/PID/stat",
        "open_files": "/proc/PID/fd",
    }
    if has_switches:
        sources["context_switches"] = "getrusage of the process and of children waited for"
    return sources
