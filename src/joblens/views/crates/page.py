"""The page that people see who open a crate: what ran, how it went, what it used, which files."""

import html
from collections.abc import Iterable, Sequence

from joblens.analysis.crates.actions import command_line, error_of
from joblens.analysis.crates.files import METADATA, instant
from joblens.analysis.crates.job import title_of as job_title
from joblens.analysis.crates.run import title_of as run_title
from joblens.model.crate import CrateAbout, CrateFile, CrateJob, CrateRun, CrateStep
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.provenance import CodeVersion, Provenance
from joblens.model.redaction.secrets import redact_address
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.crates.style import STYLE
from joblens.views.text.html_page import PAGE_HEAD
from joblens.views.text.numbers import UNKNOWN, counted

_MOST_ROWS = 500
_PAGE = (
    PAGE_HEAD
    + """<style>{style}</style>
</head>
<body>
<header><p class="kind">RO-Crate · {kind}</p><h1>{title}</h1><p class="lead">{lead}</p></header>
<main>
{body}
</main>
<footer><p>Made by joblens {version} on {when}. Everything here, and more, is in
<a href="{metadata}">{metadata}</a> for machines to read. Licence: {license}.</p></footer>
</body>
</html>
"""
)

Cell = str  # already escaped


def job_page(job: CrateJob, about: CrateAbout) -> str:
    record = job.record
    facts = [
        ("Ended as", _badge(record.status)),
        ("Started", _when(record)),
        ("Wall time", _duration(record)),
        ("CPU time", _cpu(record)),
        ("Peak memory", _memory(record)),
        ("On", _text(_host(record))),
        ("By", _text(record.job.user)),
    ]
    body = [_facts(facts), _section("Command", f"<pre>{_text(command_line(record.job))}</pre>")]
    body += [_errors([job]), _parameters(record), _files([job]), _surroundings([job])]
    return _page(job_title(job), "one job", _text(record.job.cwd), body, about)


def run_page(found: CrateRun, about: CrateAbout) -> str:
    run = found.run
    attempts = [attempt for step in found.steps for attempt in step.attempts]
    done = sum(step.is_done for step in found.steps)
    facts = [
        ("Run", _run_badge(run.status.value)),
        ("Jobs completed", f"{done:,} of {len(found.steps):,}"),
        ("Attempts", f"{len(attempts):,}"),
        ("Started", "" if run.started_at_us is None else _moment(run.started_at_us)),
        ("CPU time of all", _text(format_duration(sum(_cpu_s(one.record) for one in attempts)))),
        ("Largest job", _largest(attempts)),
        ("On", _text(run.host)),
        ("By", _text(run.user)),
    ]
    spec = found.spec_file
    link = f'<p><a href="{_text(spec.id)}">{_text(spec.name)}</a>: the workflow as it was run.</p>'
    body = [_facts(facts), _section("Workflow", link), _section("Jobs", _jobs(found))]
    body += [_errors(attempts), _files(attempts), _surroundings(attempts)]
    return _page(run_title(found), "run of a workflow", _text(found.plan.description.strip()), body, about)


def _page(title: str, kind: str, lead: Cell, body: Iterable[str], about: CrateAbout) -> str:
    is_link = about.license.startswith(("http://", "https://"))
    license_ = _text(about.license)
    return _PAGE.format(
        title=_text(title),
        kind=kind,
        lead=lead,
        style=STYLE,
        body="\n".join(part for part in body if part),
        version=_text(about.version),
        when=_moment(about.published_at_us),
        metadata=METADATA,
        license=f'<a href="{license_}">{license_}</a>' if is_link else license_,
    )


def _facts(facts: Sequence[tuple[str, Cell]]) -> str:
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts if value)
    return f'<dl class="facts">{shown}</dl>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>\n{content}\n</section>" if content else ""


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[Cell]], numbers: frozenset[int] = frozenset()
) -> str:
    """`numbers`: columns that stand to the right."""
    if not rows:
        return ""
    marks = ['<{} class="number">' if place in numbers else "<{}>" for place in range(len(titles))]
    head = "".join(f"{mark.format('th')}{title}</th>" for mark, title in zip(marks, titles, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(f"{mark.format('td')}{cell}</td>" for mark, cell in zip(marks, row, strict=True))
        + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    more = len(rows) - _MOST_ROWS
    note = (
        f'<p class="note">{more:,} more are in <a href="{METADATA}">{METADATA}</a>.</p>' if more > 0 else ""
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="table">{table}</div>{note}'


def _jobs(found: CrateRun) -> str:
    rows = [row for step in found.steps for row in _job_rows(found, step)]
    titles = ("Job", "State", "Started", "When", "Time", "CPU", "Memory", "Machine")
    return _table(titles, rows, frozenset({4, 5, 6}))


def _job_rows(found: CrateRun, step: CrateStep) -> Iterable[list[Cell]]:
    name = _text(found.plan.jobs[step.index].name)
    if not step.attempts:
        yield [name, f'<span class="badge other">{_text(step.state)}</span>', _text(step.why), *[""] * 5]
        return
    for attempt in step.attempts:
        record = attempt.record
        number = 1 if record.job.run is None else record.job.run.attempt
        mark = f' <span class="note">attempt {number}</span>' if len(step.attempts) > 1 else ""
        yield [
            f"{name}{mark}",
            _badge(record.status),
            _when(record),
            _bar(found, record),
            _duration(record),
            _cpu(record),
            _memory(record),
            _text(_host(record)),
        ]


def _bar(found: CrateRun, record: Record) -> Cell:
    """Where in the run's time it ran."""
    begin, end = found.run.started_at_us, found.run.ended_at_us
    if begin is None or end is None or end <= begin or record.attempt is None or record.outcome is None:
        return ""
    if record.attempt.started_at_us < begin:  # its outcome was kept from an earlier run
        return '<span class="note">earlier run</span>'
    whole = end - begin
    left = 100 * min(1.0, max(0.0, (record.attempt.started_at_us - begin) / whole))
    width = max(
        0.8, min(100 - left, 100 * (record.outcome.ended_at_us - record.attempt.started_at_us) / whole)
    )
    kind = "good" if record.status is Status.SUCCESS else "bad"
    return f'<div class="track"><i class="{kind}" style="left:{left:.1f}%;width:{width:.1f}%"></i></div>'


def _errors(jobs: Sequence[CrateJob]) -> str:
    rows = [
        [_text(job.record.job.name), f"<pre>{_text(error_of(job.record.outcome))}</pre>"]
        for job in jobs
        if job.record.outcome is not None and job.record.status.is_failure
    ]
    return _section("What failed", _table(("Job", "What it said"), rows))


def _parameters(record: Record) -> str:
    known = {**record.job.params, **{f"seed {name}": value for name, value in record.job.seeds.items()}}
    rows = [[_text(name), f"<code>{_text(str(value))}</code>"] for name, value in known.items()]
    return _section("Parameters", _table(("Parameter", "Value"), rows))


def _files(jobs: Sequence[CrateJob]) -> str:
    """Each once, with what was done with it."""
    done: dict[str, tuple[CrateFile, set[str]]] = {}
    for job in jobs:
        for word, files in (("read", job.inputs), ("written", job.outputs)):
            for file in files:
                done.setdefault(file.id, (file, set()))[1].add(word)
    rows = [
        [
            f'<a href="{_text(file.id)}">{_text(file.name)}</a>' if file.is_inside else _text(file.name),
            " and ".join(sorted(words)),
            UNKNOWN if file.bytes is None else format_bytes(file.bytes),
            _hash(file),
            "in this crate" if file.is_inside else "not included",
        ]
        for file, words in done.values()
    ]
    return _section("Files", _table(("File", "Was", "Size", "Hash", "Where"), rows, frozenset({2})))


def _hash(file: CrateFile) -> Cell:
    name, value = ("sha256", file.sha256) if file.sha256 else ("blake2b", file.digest)
    return f'<code title="{value}">{name} {value[:16]}…</code>' if value else ""


def _surroundings(jobs: Sequence[CrateJob]) -> str:
    found: dict[str, Provenance] = {}
    for job in jobs:
        if job.provenance is not None and job.provenance_file is not None:
            found.setdefault(job.provenance_file.id, job.provenance)
    return _section("Ran in", "\n".join(_surrounding(ident, one) for ident, one in list(found.items())[:20]))


def _surrounding(ident: str, found: Provenance) -> str:
    hardware, code = found.hardware, found.code
    memory = "" if hardware.memory_bytes is None else f"{format_bytes(hardware.memory_bytes)} of memory"
    cpus = "" if hardware.cpus is None else counted(hardware.cpus, "CPU")
    machine = ", ".join(one for one in (hardware.cpu_model, cpus, memory, *hardware.gpus) if one)
    rows = [
        ["Host", _text(found.host)],
        ["System", _text(found.system)],
        ["Hardware", _text(machine)],
        *([["Code", _code(code)]] if code is not None else []),
        *([_text("Program"), _program(one.path, one.sha256)] for one in found.programs),
        [
            "Versions",
            _text(", ".join(f"{name} {version}" for name, version in sorted(found.versions.items()))),
        ],
        [
            "Environment",
            " ".join(
                f"<code>{_text(f'{name}={value}')}</code>"
                for name, value in sorted(found.environment.items())
            ),
        ],
    ]
    whole = f'<p class="note">All of it: <a href="{_text(ident)}">{_text(ident)}</a></p>'
    return f'<div class="words">{_table(("", ""), [row for row in rows if row[1]])}</div>{whole}'


def _program(path: str, sha256: str) -> Cell:
    return f"{_text(path)}" + (f' <code title="{sha256}">sha256 {sha256[:16]}…</code>' if sha256 else "")


def _code(code: CodeVersion) -> Cell:
    state = " with uncommitted changes" if code.is_dirty else ""
    return f"<code>{_text(code.commit[:12])}</code>{state} {_text(redact_address(code.remote))}"


def _badge(status: Status) -> Cell:
    kind = "good" if status is Status.SUCCESS else "bad" if status.is_failure else "other"
    return f'<span class="badge {kind}">{status.value}</span>'


def _run_badge(status: str) -> Cell:
    kind = {"completed": "good", "failed": "bad", "stopped": "bad"}.get(status, "other")
    return f'<span class="badge {kind}">{_text(status)}</span>'


def _when(record: Record) -> Cell:
    if record.attempt is None:
        return ""
    return f'<span class="when">{_moment(record.attempt.started_at_us)}</span>'


def _moment(at_us: int) -> Cell:
    return f"{instant(at_us)[:19].replace('T', ' ')} UTC"


def _duration(record: Record) -> Cell:
    return "" if record.outcome is None else _text(format_duration(record.outcome.duration_s))


def _cpu(record: Record) -> Cell:
    usec = None if record.outcome is None else record.outcome.usage.cpu_total_usec
    return UNKNOWN if usec is None else _text(format_duration(usec / 1e6))


def _cpu_s(record: Record) -> float:
    usec = None if record.outcome is None else record.outcome.usage.cpu_total_usec
    return (usec or 0) / 1e6


def _memory(record: Record) -> Cell:
    peak = None if record.outcome is None else record.outcome.usage.memory_peak_bytes
    return UNKNOWN if peak is None else _text(format_bytes(peak))


def _largest(jobs: Sequence[CrateJob]) -> Cell:
    peaks = [
        job.record.outcome.usage.memory_peak_bytes or 0 for job in jobs if job.record.outcome is not None
    ]
    return _text(format_bytes(max(peaks))) if peaks else ""


def _host(record: Record) -> str:
    return "" if record.attempt is None else record.attempt.owner.host


def _text(text: str | None) -> Cell:
    return html.escape(text or "")
