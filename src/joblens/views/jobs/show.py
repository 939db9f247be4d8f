"""Text of `joblens show`: everything about one job, with its allocation and provenance."""

from collections.abc import Iterator, Sequence

from msgspec import json
from msgspec.structs import replace

from joblens.analysis.numbers.usage import total_usage
from joblens.model.jobs.details import CodeVersion, Details, Program, Provenance
from joblens.model.jobs.job import Attempt, FileStamp, Job, Outcome, Placement, Record
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import short
from joblens.model.values.units import KIB, counted, format_bytes, format_duration, more
from joblens.views.jobs.devices import container_pairs
from joblens.views.jobs.labels import (
    LABEL_WIDTH,
    SectionContext,
    attempt_of,
    command_line,
    duration_s,
    name_with_attempt,
    pairs,
    started_at_us,
)
from joblens.views.jobs.resources import node_lines, parts_known, render_part, render_usage
from joblens.views.jobs.seff import account_notes, account_pairs
from joblens.views.jobs.summary import ending, finding_lines
from joblens.views.text.charts import Point, braille_chart, nice_top, nice_top_binary, points
from joblens.views.text.numbers import UNKNOWN, compact_bytes, iso_instant, percent, requirements_text
from joblens.views.text.style import Palette, clean, clean_lines, fit, fold, pad, wrap

_FILES_SHOWN = 5
_DIGEST_SHOWN = 12
_WRAPPED = frozenset({"machine", "limits", "versions", "seeds", "unknown"})
NOTHING = "its environment was not recorded"

Pair = tuple[str, str]


def provenance_lines(
    record: Record, provenance: Provenance | None, width: int, paint: Palette, *, is_whole: bool = False
) -> list[str]:
    """Returns the section; empty without data."""
    facts = list(_pairs(record, provenance, is_whole=is_whole))
    if not facts:
        if not is_whole:
            return []
        facts = [("", NOTHING)]
    elif not is_whole and provenance is not None:
        facts.append(("more", f"joblens show {short(record.job.uuid)} --provenance"))
    lines = ["", paint.paint("Provenance", "bold")]
    before = ""
    for name, value in facts:
        label = "" if name == before else name
        before = name
        pieces = (wrap if name in _WRAPPED else fold)(clean(value), max(20, width - LABEL_WIDTH - 3))
        for piece in pieces:
            lines.append(f"  {paint.paint(pad(label, LABEL_WIDTH), 'dim')} {piece}")
            label = ""
    return lines


def _pairs(record: Record, provenance: Provenance | None, *, is_whole: bool) -> Iterator[Pair]:
    job, outcome = record.job, record.outcome
    if job.rerun_of:
        yield "repeats", short(job.rerun_of)
    if provenance is not None:
        yield from _environment_pairs(provenance, is_whole=is_whole)
    if job.seeds:
        yield "seeds", ", ".join(f"{name}={value}" for name, value in job.seeds.items())
    yield from _files("inputs", record.inputs, is_whole=is_whole)
    yield from _files("outputs", outcome.outputs if outcome is not None else (), is_whole=is_whole)
    if provenance is not None and is_whole:
        yield from _everything(provenance)
    if provenance is not None:
        for part, why in provenance.unknown.items():
            yield "unknown", f"{part}: {why}"


def _environment_pairs(provenance: Provenance, *, is_whole: bool) -> Iterator[Pair]:
    if provenance.code is not None:
        yield "code", _code(provenance.code, is_whole=is_whole)
    for program in provenance.programs:
        yield "programs", _program(program, is_whole=is_whole)
    if "python" in provenance.versions:
        packages = len(provenance.versions) - 2
        yield "Python", f"{provenance.versions['python']} with {counted(max(0, packages), 'package')}"
    hardware = provenance.hardware
    parts = [
        provenance.host,
        hardware.cpu_model,
        "" if hardware.cpus is None else counted(hardware.cpus, "CPU"),
        "" if hardware.memory_bytes is None else format_bytes(hardware.memory_bytes),
        *hardware.gpus,
        provenance.system,
    ]
    yield "machine", ", ".join(part for part in parts if part)


def _code(code: CodeVersion, *, is_whole: bool) -> str:
    commit = (code.commit if is_whole else code.commit[:_DIGEST_SHOWN]) or "no commit yet"
    branch = f" on {code.branch}" if code.branch else ""
    changes = {True: ", with changes", False: "", None: ", changes unknown"}[code.is_dirty]
    if is_whole and code.changes_digest:
        changes += f" {code.changes_digest}"
    remote = f" of {code.remote}" if code.remote and is_whole else ""
    return f"{commit}{branch}{changes}{remote}  {code.root}"


def _program(program: Program, *, is_whole: bool) -> str:
    size = "" if program.bytes is None else f"  {format_bytes(program.bytes)}"
    return f"{program.path}{size}{_digest(program.sha256, is_whole=is_whole)}"


def _files(name: str, stamps: Sequence[FileStamp], *, is_whole: bool) -> Iterator[Pair]:
    shown = stamps if is_whole else stamps[:_FILES_SHOWN]
    for each in shown:
        if each.size is None:
            yield name, f"{each.path}  {'missing' if each.mtime_ns is None else 'a directory'}"
        else:
            files = "" if each.files is None else f"{counted(each.files, 'file')}, "
            digest = _digest(each.digest or "", is_whole=is_whole)
            yield name, f"{each.path}  {files}{format_bytes(each.size)}{digest}"
    if len(shown) < len(stamps):
        yield name, more(len(stamps) - len(shown))


def _digest(digest: str, *, is_whole: bool) -> str:
    if not digest:
        return ""
    return f"  sha256 {digest}" if is_whole else f"  {digest[:_DIGEST_SHOWN]}"


def _everything(provenance: Provenance) -> Iterator[Pair]:
    yield "kernel", provenance.kernel
    if provenance.hardware.architecture:
        yield "architecture", provenance.hardware.architecture
    yield "limits", ", ".join(f"{name} {value}" for name, value in provenance.limits.items())
    for name, value in sorted(provenance.environment.items()):
        yield "environment", f"{name}={value}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in provenance.versions.items())


_ENGINES = {"ray": "Ray", "slurm": "Slurm"}


def placement_pairs(placement: Placement | None) -> list[tuple[str, str]]:
    if placement is None:
        return []
    engine = _ENGINES.get(placement.engine, placement.engine)
    kind = "allocation" if placement.is_allocation else "job" if placement.engine == "slurm" else "task"
    asked = " ".join(f"{name}={value}" if value else name for name, value in placement.asked.items())
    words = (engine, kind, placement.job_id) if placement.job_id else (engine,)
    return [
        ("placed by", clean(" ".join(words))),
        ("cluster", clean(placement.cluster)),
        ("nodes", clean(", ".join(placement.nodes))),
        ("node id", clean(placement.node_id)),
        ("partition", clean(placement.partition)),
        ("account", clean(placement.account)),
        ("requested", clean(asked)),
    ]


_CHART_LINES = 4
_CHART_WIDTH = 100
_STDERR_LINES = 12
_LEAST_NETWORK = 64 * KIB  # per second
_NO_CURVE = 2  # so few points make no curve

NO_DETAILS = Details()
Pairs = Sequence[tuple[str, str]]


def render_show(  # noqa: PLR0913 - one part of the page each
    record: Record,
    samples: Sequence[Sample],
    *,
    now_us: int,
    width: int,
    paint: Palette,
    details: Details = NO_DETAILS,
    provenance: Provenance | None = None,
    waits: str = "",
    raised: str = "",
) -> list[str]:
    """Formats a job. `waits`: where a queued job waits. `raised`: limits that recovery raised."""
    outcome = record.outcome
    lines = [*_head(record, now_us, paint), *(wrap(clean(waits), width, "  ") if waits else ())]
    if outcome is not None:
        if outcome.findings:
            lines += _section("Findings", paint)
            for finding in outcome.findings:
                lines += finding_lines(finding, paint, width)
        usage = render_usage(outcome.usage, outcome.duration_s, width, paint)
        lines += [*_section("Usage", paint), *usage] if usage else []
    elif record.attempt is not None and samples:
        lines += _usage_so_far(record.attempt, samples, width, paint)
    if details.nodes is not None:
        lines += _section(f"Nodes ({len(details.nodes.nodes)})", paint)
        lines += node_lines(details.nodes, width, paint)
    if details.operators is not None:
        context = SectionContext(record=record, samples=samples, details=details, width=width, paint=paint)
        lines += render_part("operators", context)
    lines += _more(record, parts_known(details, samples), width, paint)
    lines += _charts(samples, width, paint)
    lines += [*_section("Job", paint), *pairs(_job_pairs(record, raised), paint)]
    lines += _environment(record.job, width, paint)
    if record.attempt is not None:
        facts = _wrapped(_attempt_pairs(record, record.attempt), width)
        lines += [*_section("Ran on", paint), *pairs(facts, paint)]
    lines += provenance_lines(record, provenance, width, paint)
    if details.cluster is not None:
        lines += [
            *_section("Slurm's accounting", paint),
            *pairs(account_pairs(details.cluster, record), paint),
        ]
        for note in account_notes(details.cluster, record):
            lines += [paint.paint(line, "dim") for line in wrap(note, width, "  ")]
    if details.container is not None:
        lines += [*_section("Container", paint), *pairs(container_pairs(details.container), paint)]
    if outcome is not None:
        lines += [*_section("Output", paint), *pairs(_output_pairs(record.attempt, outcome), paint)]
        lines += _stderr(outcome, width, paint)
    return lines


def render_parts(
    record: Record,
    samples: Sequence[Sample],
    details: Details,
    parts: Sequence[str],
    *,
    now_us: int,
    width: int,
    paint: Palette,
    provenance: Provenance | None = None,
) -> list[str]:
    """Formats only the requested parts: threads, network, memory, gpu, operators, provenance."""
    context = SectionContext(record=record, samples=samples, details=details, width=width, paint=paint)
    lines = _head(record, now_us, paint)
    for part in parts:
        if part == "provenance":
            lines += provenance_lines(record, provenance, width, paint, is_whole=True)
        else:
            lines += render_part(part, context)
    return lines


def _more(record: Record, parts: Sequence[str], width: int, paint: Palette) -> list[str]:
    if not parts:
        return []
    options = " ".join(f"--{part}" for part in parts)
    return [
        paint.paint(line, "dim")
        for line in wrap(f"more: joblens show {short(record.job.uuid)} {options}", width, "  ")
    ]


def _head(record: Record, now_us: int, paint: Palette) -> list[str]:
    outcome = record.outcome
    number = "" if record.number is None else f"  #{record.number}"
    state = paint.status(record.status)
    took = duration_s(record, now_us)
    if outcome is not None:
        how = ending(outcome)
        state = paint.status(record.status, f"{record.status.value} ({how})" if how else record.status.value)
    when = f"started {iso_instant(started_at_us(record))}" if record.attempt else "not started"
    spent = (
        f" after {format_duration(took)}" if outcome is not None else f" for {format_duration(took)} so far"
    )
    lines = [
        f"{paint.paint(name_with_attempt(record), 'bold')}  {record.job.uuid}{number}",
        f"{state}{spent if took is not None else ''}, {when}",
    ]
    if outcome is not None and outcome.error and outcome.error != ending(outcome):
        lines += [paint.paint(line, "red") for line in clean_lines(outcome.error.rstrip())]
    return lines


def _usage_so_far(attempt: Attempt, samples: Sequence[Sample], width: int, paint: Palette) -> list[str]:
    """Returns usage from samples. Reasons for unknown numbers are known only at the end of the job."""
    elapsed_s = samples[-1].elapsed_us / 1e6
    usage = total_usage(samples, None, accounting=attempt.accounting, sources={}, unknown={})
    title = f"Usage so far (at the last sample, after {format_duration(elapsed_s)})"
    return [
        *_section(title, paint),
        *render_usage(replace(usage, sources={}, unknown={}), elapsed_s, width, paint),
    ]


def _section(title: str, paint: Palette) -> list[str]:
    return ["", paint.paint(title, "bold")]


def _wrapped(pairs: Pairs, width: int) -> Pairs:
    """Wraps long sentences, such as the reason for an accounting mode."""
    return [
        (name if number == 0 else " ", line)
        for name, value in pairs
        for number, line in enumerate(wrap(value, width - LABEL_WIDTH - 3))
    ]


def _job_pairs(record: Record, raised: str = "") -> Pairs:
    job = record.job
    needs = job.requirements
    return [
        ("command", command_line(job) + (" (shell)" if job.is_shell else "")),
        ("attached to", clean(job.attached)),
        ("directory", clean(job.cwd)),
        ("own id", clean(job.external_id or "")),
        ("tool", clean(job.tool)),
        ("script", clean(job.script)),
        ("parameters", clean(json.encode(job.params).decode()) if job.params else ""),
        ("label", clean(job.label)),
        ("tags", clean(", ".join(job.tags))),
        ("requested", requirements_text(needs)),
        ("raised", clean(raised)),
        (
            "limits",
            "" if job.enforce or not any((needs.cpus, needs.memory_bytes, needs.pids)) else "not enforced",
        ),
        ("user", clean(job.user)),
        ("created", iso_instant(job.created_at_us)),
        ("bound to CPUs", clean(job.cpu_list)),
        ("GPUs", clean(", ".join(record.gpu_devices))),
        ("CO2 factor", _grid_factor(job)),
        ("sampling", f"every {job.interval_s:g}s" if job.monitor else "off"),
    ]


def _grid_factor(job: Job) -> str:
    return UNKNOWN if job.grid_co2_g_per_kwh is None else f"{job.grid_co2_g_per_kwh:g} g/kWh"


def _environment(job: Job, width: int, paint: Palette) -> list[str]:
    """Lists variables one per line; wraps long values, because a truncated value would mislead."""
    lines: list[str] = []
    for name, value in sorted(job.env.items()):
        for piece in fold(clean(f"{name}={value}"), width - LABEL_WIDTH - 3):
            label = "" if lines else "environment"
            lines.append(f"  {paint.paint(pad(label, LABEL_WIDTH), 'dim')} {piece}")
    return lines


def _attempt_pairs(record: Record, attempt: Attempt) -> Pairs:
    number = attempt_of(record)
    enforced = ", ".join(
        f"{limit} {how}" if how.startswith("watched") else f"{limit} by {how}"
        for limit, how in attempt.enforced_by.items()
    )
    return [
        ("host", clean(attempt.owner.host)),
        *placement_pairs(attempt.placement),
        ("kernel", attempt.kernel),
        ("CPUs", UNKNOWN if attempt.cpu_count is None else str(attempt.cpu_count)),
        ("memory", format_bytes(attempt.memory_total_bytes)),
        ("accounting", _accounting(attempt)),
        ("enforced", enforced),
        ("process", UNKNOWN if attempt.pid is None else str(attempt.pid)),
        ("attempt", "" if number == 1 else str(number)),
    ]


def _accounting(attempt: Attempt) -> str:
    reason = attempt.accounting_reason
    return f"{attempt.accounting} ({clean(reason)})" if reason else attempt.accounting


def _output_pairs(attempt: Attempt | None, outcome: Outcome) -> Pairs:
    leftovers = f"{outcome.leftovers} outlived the main process and were killed" if outcome.leftovers else ""
    return [
        ("exit code", UNKNOWN if outcome.exit_code is None else str(outcome.exit_code)),
        ("signal", UNKNOWN if outcome.signal is None else str(outcome.signal)),
        ("ended", iso_instant(outcome.ended_at_us)),
        ("processes", leftovers),
        ("stdout", format_bytes(outcome.stdout_bytes)),
        ("stderr", format_bytes(outcome.stderr_bytes)),
        ("logs", clean(attempt.logs_dir) if attempt is not None else ""),
        ("worker", clean(outcome.worker)),
    ]


def _stderr(outcome: Outcome, width: int, paint: Palette) -> list[str]:
    if not outcome.stderr_tail.strip():
        return []
    last = clean_lines(outcome.stderr_tail.rstrip())[-_STDERR_LINES:]
    return [
        *_section("Last lines of stderr", paint),
        *(f"  {fit(line, max(20, width - 2))}" for line in last),
    ]


def _charts(samples: Sequence[Sample], width: int, paint: Palette) -> list[str]:
    curve = points(samples)
    if len(curve) <= _NO_CURVE:
        return []
    span = format_duration(curve[-1].elapsed_s)
    lines = [*_section(f"Over time ({len(curve)} samples, {span})", paint)]
    width = min(width, _CHART_WIDTH)
    lines += _chart("CPU", curve, [point.cpu_percent for point in curve], width, paint)
    lines += _chart("memory", curve, [point.memory_bytes for point in curve], width, paint)
    lines += _chart("I/O per s", curve, [point.io_per_s for point in curve], width, paint)
    lines += _chart("network per s (in + out)", curve, _network_curve(curve), width, paint)
    lines += _chart("GPU", curve, [point.gpu_percent for point in curve], width, paint)
    lines += _chart("GPU memory", curve, [point.gpu_memory_bytes for point in curve], width, paint)
    return lines


def _network_curve(curve: Sequence[Point]) -> list[float | None]:
    """Returns network rates, or nothing if they are negligible, such as a DNS lookup."""
    rates = [point.network_per_s for point in curve]
    return rates if max((rate or 0.0 for rate in rates), default=0.0) >= _LEAST_NETWORK else []


def _chart(
    title: str, curve: Sequence[Point], values: Sequence[float | None], width: int, paint: Palette
) -> list[str]:
    known = [value for value in values if value is not None]
    if not any(known):  # unknown, or all zeros
        return []
    is_share = title in ("CPU", "GPU")
    top = nice_top(max(known)) if is_share else nice_top_binary(max(known))
    axis = percent if is_share else compact_bytes
    chart = braille_chart(
        [point.elapsed_s for point in curve], values, width=width - 4, height=_CHART_LINES, top=top, axis=axis
    )
    peak = f"{title}, highest {axis(max(known))}"
    return [f"  {peak}", *(f"  {paint.paint(line, 'cyan')}" for line in chart)]
