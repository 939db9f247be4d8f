"""Resource sections of `show`: use number by number, per node, threads, network, memory, GPUs, operators."""

from collections.abc import Callable, Sequence

from joblens.analysis.findings.memory_growth import memory_growth
from joblens.analysis.numbers.gpu import gpus_used
from joblens.analysis.numbers.rates import NO_GRID_FACTOR, NOT_MEASURED, ONLY_IMPORTED
from joblens.analysis.numbers.usage import source_of
from joblens.model.jobs.details import (
    Details,
    Endpoint,
    EndpointTable,
    MemoryDepth,
    NodePart,
    NodeTable,
    ThreadUse,
)
from joblens.model.jobs.job import Status, Usage
from joblens.model.jobs.probe_choice import DEFAULT_PROBES
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_bytes, format_cpu_list, format_duration, more
from joblens.views.jobs.devices import gpu_section, network_pairs
from joblens.views.jobs.labels import MOST_ROWS, SectionContext, heading, pairs, rest, table, why_empty
from joblens.views.jobs.recipe_operators import operators_section
from joblens.views.text.numbers import (
    UNKNOWN,
    count,
    grams,
    joules,
    mark_bound,
    mark_number,
    percent,
    seconds,
)
from joblens.views.text.style import Palette, clean, pad, pad_left, wrap
from joblens.views.text.table import Column, render_table

_THREAD_COLUMNS = (
    Column("TID", is_right=True),
    Column("PROCESS", gives_way=True, goes=4),
    Column("THREAD", gives_way=True),
    Column("CPU TIME", is_right=True),
    Column("SHARE", is_right=True),
    Column("SYSTEM", is_right=True, goes=2),
    Column("WAITED", is_right=True, goes=7),
    Column("MOVES", is_right=True, goes=6),
    Column("SWITCHES", is_right=True, goes=3),
    Column("FORCED", is_right=True, goes=5),
    Column("CPU", is_right=True, goes=1),
)
_ENDPOINT_COLUMNS = (
    Column("KIND"),
    Column("WITH", gives_way=True, least=24, keeps_end=True),
    Column("SOCKETS", is_right=True, goes=2),
    Column("RECEIVED", is_right=True),
    Column("SENT", is_right=True),
    Column("RESENT", is_right=True, goes=3),
    Column("RTT", is_right=True, goes=1),
)
_PROCESS_COLUMNS = (
    Column("PID", is_right=True),
    Column("NAME", gives_way=True),
    Column("PSS", is_right=True),
    Column("RESIDENT", is_right=True, goes=1),
    Column("PRIVATE", is_right=True, goes=2),
    Column("SHARED", is_right=True, goes=3),
    Column("SWAP", is_right=True, goes=4),
)

_TICK_USEC = 10_000  # of the kernel's clock, in which some totals are counted
_MEMORY_PARTS = {
    "anon_bytes": "anonymous",
    "page_cache_bytes": "page cache",
    "shmem_bytes": "shared",
    "kernel_bytes": "kernel",
    "pss_bytes": "proportional",
    "huge_bytes": "huge pages",
    "hugetlb_bytes": "hugetlbfs",
    "numa": "by node",
}
_TOTAL_LABELS = {"Total RX": "received", "Total TX": "sent"}


def parts_known(details: Details, samples: Sequence[Sample]) -> list[str]:
    """Returns the sections that have data."""
    known = {
        "threads": details.threads is not None and details.threads.seen > 0,
        "network": details.endpoints is not None or any(sample.interfaces for sample in samples[-1:]),
        "memory": details.memory is not None,
        "gpu": bool(gpus_used(samples)),
    }
    return [part for part, is_known in known.items() if is_known]


def render_part(part: str, context: SectionContext) -> list[str]:
    """Formats a heading, then the content, or why there is no content."""
    return ["", *_SECTIONS[part](context)]


# ---- threads --------------------------------------------------------------------------------------------


def _threads(context: SectionContext) -> list[str]:
    threads = context.details.threads
    if threads is None:
        return [heading("Threads", context), *why_empty("threads", context, "threads")]
    total = f" of {threads.seen + threads.unread:,}" if threads.unread else ""
    lines = [heading(f"Threads ({threads.seen:,}{total} sampled)", context)]
    job_usec = max(threads.cpu_usec, _cpu_of_job(context))
    # Threads that lived between two samples, or after the last, are only in the job's total.
    misses = bool(threads.unread) or job_usec - threads.cpu_usec > max(_TICK_USEC, job_usec // 100)
    moves = UNKNOWN if threads.migrations is None else f"{threads.migrations:,} between CPUs"
    of_job = f" of the job's {seconds(job_usec)}" if misses and job_usec > threads.cpu_usec else ""
    lines += pairs(
        [
            ("CPU time", mark_bound(seconds(threads.cpu_usec), is_lower_bound=misses) + of_job),
            ("waited for a CPU", mark_bound(seconds(threads.wait_usec), is_lower_bound=misses)),
            ("moves", mark_bound(moves, is_lower_bound=misses)),
            ("CPUs allowed", clean(context.record.job.cpu_list)),
            ("source", clean(threads.source)),
        ],
        context.paint,
    )
    rows = [_thread_row(thread, job_usec) for thread in threads.threads]
    if rows:
        lines += ["", *table(_THREAD_COLUMNS, rows, context)]
    return lines + rest(threads.seen, len(rows[:MOST_ROWS]), "thread", context)


def _cpu_of_job(context: SectionContext) -> int:
    outcome = context.record.outcome
    if outcome is not None:
        return outcome.usage.cpu_total_usec or 0
    return next((sample.cpu_total_usec or 0 for sample in reversed(context.samples)), 0)


def _thread_row(thread: ThreadUse, all_usec: int) -> list[str]:
    ended = "" if thread.is_alive else " †"
    return [
        str(thread.tid),
        clean(thread.process),
        clean(thread.name) + ended,
        seconds(thread.cpu_usec),
        percent(100 * thread.cpu_usec / all_usec) if all_usec else UNKNOWN,
        seconds(thread.system_usec),
        seconds(thread.wait_usec),
        count(thread.migrations),
        count(thread.switches_voluntary),
        count(thread.switches_involuntary),
        UNKNOWN if thread.last_cpu is None else str(thread.last_cpu),
    ]


# ---- network --------------------------------------------------------------------------------------------


def _network(context: SectionContext) -> list[str]:
    endpoints = context.details.endpoints
    last = next((sample for sample in reversed(context.samples) if sample.network_rx_bytes is not None), None)
    if last is None:
        last = next((sample for sample in reversed(context.samples) if sample.interfaces), None)
    if endpoints is None and last is None:
        return [
            heading("Network", context),
            *why_empty("network", context, "endpoints", number="network_rx_bytes"),
        ]
    lines = [heading("Network", context)]
    if last is not None:
        lines += pairs(
            [
                (_TOTAL_LABELS.get(name, name.replace("Interface", "interface")), value)
                for name, value in network_pairs(last, None)
            ],
            context.paint,
        )
    if endpoints is None:
        is_early = context.record.outcome is None and "endpoints" in _probes_of(context)
        why = context.details.unknown.get("endpoints") or ("not sampled yet" if is_early else "")
        return [*lines, *wrap(f"endpoints unknown: {clean(why)}", context.width, "  ")] if why else lines
    is_over = context.record.outcome is not None and context.record.status is not Status.MEASURED
    rows = [_endpoint_row(endpoint, is_over=is_over) for endpoint in endpoints.endpoints]
    if rows:
        lines += ["", *table(_ENDPOINT_COLUMNS, rows, context)]
    lines += rest(endpoints.seen, len(rows[:MOST_ROWS]), "endpoint", context)
    if endpoints.source:
        lines += wrap(_observed_text(endpoints, last, context), context.width, "  ")
    return lines


def _observed_text(table: EndpointTable, totals: Sample | None, context: SectionContext) -> str:
    """Describes the completeness of the list: its share of the job's traffic, and the time of its last
    sample."""
    text = f"sockets sampled by {clean(table.source)}"
    seen_at_us = table.open_at_us or table.at_us
    if context.record.outcome is not None and context.record.attempt is not None:
        end_us = context.record.attempt.started_at_us + round(context.record.outcome.duration_s * 1e6)
        before_s = max(0.0, (end_us - seen_at_us) / 1e6)
        text += f", last {format_duration(before_s)} before the end"
    else:
        text += f", last {_when(seen_at_us, context)}"
    if totals is None or totals.network_rx_bytes is None or totals.network_tx_bytes is None:
        return text
    received = sum(endpoint.rx_bytes or 0 for endpoint in table.endpoints)
    sent = sum(endpoint.tx_bytes or 0 for endpoint in table.endpoints)
    return (
        f"{text}; covers {format_bytes(received)} of {format_bytes(totals.network_rx_bytes)} received, "
        f"{format_bytes(sent)} of {format_bytes(totals.network_tx_bytes)} sent (without headers)"
    )


def _probes_of(context: SectionContext) -> Sequence[str]:
    probes = context.record.job.probes
    return DEFAULT_PROBES if probes is None else probes


def _endpoint_row(endpoint: Endpoint, *, is_over: bool) -> list[str]:
    """Marks traffic as a lower bound after the end of a socket: what follows its last sample is unknown."""
    is_least = is_over or endpoint.gone > 0
    address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    where = clean(f"{address}:{endpoint.port}")
    return [
        endpoint.protocol,
        f"listens {where}" if endpoint.is_listener else where,
        str(endpoint.sockets),
        mark_bound(format_bytes(endpoint.rx_bytes), is_lower_bound=is_least),
        mark_bound(format_bytes(endpoint.tx_bytes), is_lower_bound=is_least),
        count(endpoint.retransmits),
        UNKNOWN if endpoint.rtt_usec is None else f"{endpoint.rtt_usec / 1000:.2f}ms",
    ]


# ---- memory ---------------------------------------------------------------------------------------------


def _memory(context: SectionContext) -> list[str]:
    depth = context.details.memory
    growth = ("growth", _growth(context.samples))
    lines = [heading("Memory", context)]
    if depth is None:
        return [*lines, *pairs([growth], context.paint), *why_empty("memory", context, "memory")]
    lines += pairs([*_memory_parts(depth), growth, ("sampled", _when(depth.at_us, context))], context.paint)
    rows = [
        [
            str(process.pid),
            clean(process.name),
            format_bytes(process.pss_bytes),
            format_bytes(process.rss_bytes),
            format_bytes(process.private_bytes),
            format_bytes(process.shared_bytes),
            format_bytes(process.swap_bytes),
        ]
        for process in depth.processes
    ]
    if rows:
        lines += ["", *table(_PROCESS_COLUMNS, rows, context)]
    lines += rest(depth.seen, len(rows[:MOST_ROWS]), "process", context)
    for reason in dict.fromkeys(depth.unknown.values()):
        names = [_MEMORY_PARTS.get(name, name) for name, why in depth.unknown.items() if why == reason]
        lines += wrap(f"unknown: {clean(', '.join(names))} ({clean(reason)})", context.width, "  ")
    return lines


def _memory_parts(depth: MemoryDepth) -> list[tuple[str, str]]:
    names = ("anon_bytes", "page_cache_bytes", "shmem_bytes", "kernel_bytes")
    parts = [(_MEMORY_PARTS[name], getattr(depth, name)) for name in names]
    whole = sum(size or 0 for _, size in parts)
    nodes = sorted(depth.numa_bytes.items(), key=lambda node: (len(node[0]), node[0]))
    return [
        *((name, f"{format_bytes(size)}{_share(size, whole)}") for name, size in parts if size is not None),
        *(
            (_MEMORY_PARTS[name], format_bytes(getattr(depth, name)))
            for name in ("pss_bytes", "huge_bytes", "hugetlb_bytes")
        ),
        *((f"node {clean(name).removeprefix('N')}", format_bytes(size)) for name, size in nodes),
    ]


def _when(at_us: int, context: SectionContext) -> str:
    attempt = context.record.attempt
    if attempt is None:
        return UNKNOWN
    return f"{format_duration(max(0.0, (at_us - attempt.started_at_us) / 1e6))} after the start"


def _share(size: int, whole: int) -> str:
    return f" ({100 * size / whole:.0f}%)" if whole else ""


def _growth(samples: Sequence[Sample]) -> str:
    growth = memory_growth(samples)
    if growth is None:
        return UNKNOWN
    rate = growth.bytes_per_hour
    sign = "-" if rate < 0 else "+"
    ends = f"{format_bytes(growth.first_bytes)} to {format_bytes(growth.last_bytes)}"
    return f"{sign}{format_bytes(abs(rate))} per hour (minimum: {ends})"


_SECTIONS: dict[str, Callable[[SectionContext], list[str]]] = {
    "threads": _threads,
    "network": _network,
    "memory": _memory,
    "gpu": gpu_section,
    "operators": operators_section,
}


Show = Callable[[int | None], str]

# (label, field of Usage, formatter); an indented label belongs to the one above it.
_ROWS: tuple[tuple[str, str, Show], ...] = (
    ("CPU time", "cpu_total_usec", seconds),
    ("  user CPU", "cpu_user_usec", seconds),
    ("  system CPU", "cpu_system_usec", seconds),
    ("  throttled time", "cpu_throttled_usec", seconds),
    ("memory peak", "memory_peak_bytes", format_bytes),
    ("  with page cache", "memory_kernel_peak_bytes", format_bytes),
    ("  most page cache", "memory_file_peak_bytes", format_bytes),
    ("  largest process", "memory_largest_process_bytes", format_bytes),
    ("  mean memory", "memory_mean_bytes", format_bytes),
    ("peak of summed RSS", "memory_rss_sum_peak_bytes", format_bytes),
    ("out-of-memory kills", "oom_kills", count),
    ("page faults minor", "faults_minor", count),
    ("page faults major", "faults_major", count),
    ("read from devices", "io_read_bytes", format_bytes),
    ("  read operations", "io_read_ops", count),
    ("written to devices", "io_write_bytes", format_bytes),
    ("  write operations", "io_write_ops", count),
    ("read by calls", "io_call_read_bytes", format_bytes),
    ("  read calls", "io_call_reads", count),
    ("written by calls", "io_call_write_bytes", format_bytes),
    ("  write calls", "io_call_writes", count),
    ("processes at once", "processes_peak", count),
    ("threads at once", "threads_peak", count),
    ("open files at once", "open_files_peak", count),
    ("process limit hit", "pids_limit_events", count),
    ("voluntary switches", "context_switches_voluntary", count),
    ("forced switches", "context_switches_involuntary", count),
    ("waited for CPU", "cpu_pressure_usec", seconds),
    ("waited for memory", "memory_pressure_usec", seconds),
    ("waited for I/O", "io_pressure_usec", seconds),
    ("received", "network_rx_bytes", format_bytes),
    ("  packets received", "network_rx_packets", count),
    ("sent", "network_tx_bytes", format_bytes),
    ("  packets sent", "network_tx_packets", count),
    ("GPU memory peak", "gpu_memory_peak_bytes", format_bytes),
    ("GPU busy", "gpu_busy_usec", seconds),
    ("GPU energy", "gpu_energy_uj", joules),
    ("processor energy", "energy_package_uj", joules),
    ("memory energy", "energy_dram_uj", joules),
    ("CO2", "co2_mg", grams),
    ("instructions", "instructions", count),
    ("  cycles", "cycles", count),
    ("moves between CPUs", "cpu_migrations", count),
)
_NOTHING_WHEN_ZERO = ("gpu_memory_peak_bytes", "gpu_busy_usec", "gpu_energy_uj")  # most jobs use no GPU
USAGE_NUMBERS = tuple(name for _, name, _ in _ROWS)
_LABEL = max(len(label) for label, _, _ in _ROWS)
_VALUE = 14
_DITTO = "″"  # the same source as the line above


def render_usage(usage: Usage, duration_s: float, width: int, paint: Palette) -> list[str]:
    """Lists known numbers with their sources, then unknown ones by reason."""
    lines: list[str] = []
    above = ""
    for label, name, show in _ROWS:
        if _is_shown(usage, name):
            source = _source(usage, name)
            shown = _DITTO if source and source == above else source
            lines += _lines(label, _value(usage, name, show, duration_s), shown, width, paint)
            above = source
    if usage.shared:
        lines.append("  measurements overlapped in one process: they share these numbers")
    if usage.lower_bounds:
        lines.append(paint.paint("  ≥ lower bound; the exact number is unavailable", "dim"))
    if usage.estimates:
        lines.append(paint.paint("  ≈ estimate: other processes used the same files", "dim"))
    for reason, labels in _unknown(usage).items():
        lines += wrap(f"unknown: {', '.join(labels)} ({reason})", width, "  ")
    return lines


def _is_shown(usage: Usage, name: str) -> bool:
    value: int | None = getattr(usage, name)
    return value is not None and (value > 0 or name not in _NOTHING_WHEN_ZERO)


def _value(usage: Usage, name: str, show: Show, duration_s: float) -> str:
    value: int | None = getattr(usage, name)
    text = mark_number(show(value), usage, name)
    if name in ("cpu_total_usec", "gpu_busy_usec") and value is not None and duration_s > 0:
        text += f" ({percent(value / 1e4 / duration_s)})"
    return text


def _lines(label: str, value: str, source: str, width: int, paint: Palette) -> list[str]:
    margin = " " * (_LABEL + _VALUE + 5)
    first, *rest = wrap(clean(source), max(width, len(margin) + 24), margin) or [margin]
    head = f"  {pad(label, _LABEL)} {pad_left(value, _VALUE)}  {paint.paint(first[len(margin) :], 'dim')}"
    return [head.rstrip(), *(paint.paint(line, "dim") for line in rest)]


def _source(usage: Usage, name: str) -> str:
    source = source_of(usage, name) or usage.sources.get(name, "")
    if name == "memory_largest_process_bytes" and _exceeds_peak(usage):
        return f"{source}; includes shared libraries".removeprefix("; ")
    return source


def _exceeds_peak(usage: Usage) -> bool:
    return (usage.memory_largest_process_bytes or 0) > (usage.memory_peak_bytes or float("inf"))


def _has_energy(usage: Usage) -> bool:
    return usage.energy_package_uj is not None or usage.gpu_energy_uj is not None


def _unknown(usage: Usage) -> dict[str, list[str]]:
    """Returns reason -> labels of the numbers that are unknown for it."""
    reasons: dict[str, list[str]] = {}
    for label, name, _ in _ROWS:
        reason = clean(usage.unknown.get(name, ""))
        if name == "co2_mg" and reason == NO_GRID_FACTOR and not _has_energy(usage):
            continue  # CO2 is not configured, and no energy is known
        if getattr(usage, name) is None and reason and reason not in (NOT_MEASURED, ONLY_IMPORTED):
            reasons.setdefault(reason, []).append(label.strip())
    return reasons


_MOST_ROWS = 64
_MOST_RANKS = 6
_COLUMNS = (
    Column("NODE", gives_way=True, least=8),
    Column("RANKS", goes=3),
    Column("TASKS", is_right=True, goes=4),
    Column("CPU TIME", is_right=True),
    Column("MEMORY PEAK", is_right=True),
    Column("READ", is_right=True, goes=1),
    Column("WRITTEN", is_right=True, goes=2),
)


def node_lines(table: NodeTable, width: int, paint: Palette) -> list[str]:
    """Returns a table of nodes, first the one where the command was started."""
    shown = table.nodes[:_MOST_ROWS]
    lines = [
        f"  {line}" for line in render_table(_COLUMNS, [_cells(part) for part in shown], width - 2, paint)
    ]
    if len(table.nodes) > len(shown):
        lines.append(f"  {more(len(table.nodes) - len(shown), 'node')}")
    for part in table.nodes:
        if part.error:
            lines += wrap(f"{clean(part.node)}: {clean(part.error)}", width, "  ")
    return lines


def _cells(part: NodePart) -> list[str]:
    usage = part.usage
    return [
        clean(part.node),
        _ranks(part.tasks),
        count(part.processes),
        _bounded(part, "cpu_total_usec", seconds(usage.cpu_total_usec)),
        _bounded(part, "memory_peak_bytes", format_bytes(usage.memory_peak_bytes)),
        _bounded(part, "io_read_bytes", format_bytes(usage.io_read_bytes)),
        _bounded(part, "io_write_bytes", format_bytes(usage.io_write_bytes)),
    ]


def _bounded(part: NodePart, number: str, text: str) -> str:
    return text if getattr(part.usage, number) is None else mark_number(text, part.usage, number)


def _ranks(ranks: tuple[int, ...]) -> str:
    """Returns ranges of ranks: 0-3,8."""
    if not ranks:
        return UNKNOWN
    ranges = format_cpu_list(ranks).split(",")
    return ",".join(ranges[:_MOST_RANKS]) + (",…" if len(ranges) > _MOST_RANKS else "")
