"""Crate page: the HTML preview of an RO-Crate and its style sheet."""

import html
from collections.abc import Iterable, Sequence

from joblens.analysis.crates.actions import command_line, error_of
from joblens.analysis.crates.graph import METADATA
from joblens.analysis.crates.profiles import job_title, run_title
from joblens.model.crate import CrateAbout, CrateFile, CrateJob, CrateRun, CrateStep
from joblens.model.jobs.details import CodeVersion, Provenance
from joblens.model.jobs.job import Record, Status, Usage
from joblens.model.redaction.secrets import redact_address
from joblens.model.values.units import counted, format_bytes, format_duration
from joblens.views.text.numbers import instant, seconds
from joblens.views.text.style import PAGE_HEAD

STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #667085; --line: #e4e7ec; --paper: #fff;
  --back: #f6f7f9; --good: #1a7f4b; --good-back: #e3f5ea; --bad: #b42318; --bad-back: #fdeceb;
  --other: #475467; --other-back: #eef0f4; --link: #1b5fc1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa3b2; --line: #30353f;
  --paper: #1b1f27; --back: #14171d; --good: #6fd79d; --good-back: #163526; --bad: #ff9b91;
  --bad-back: #44201d; --other: #b6bdc9; --other-back: #2a2f39; --link: #84b6ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; }
header, main, footer { max-width: 1080px; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.2rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .7rem; }
.kind { margin: 0 0 .2rem; color: var(--soft); font-size: .85rem; letter-spacing: .02em; }
.lead { margin: .3rem 0 1.2rem; color: var(--soft); overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin: 0 0 1.1rem; }
section p { margin: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem;
  margin: 0 0 1.1rem; }
.facts div { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: .65rem .9rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: .1rem 0 0; font-weight: 600; overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: .8rem; white-space: nowrap; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.words td:first-child { color: var(--soft); white-space: nowrap; width: 7rem; }
.words thead { display: none; }
.badge { border-radius: 99px; padding: .1rem .6rem; font-size: .82rem; font-weight: 600;
  white-space: nowrap; }
.badge.good { color: var(--good); background: var(--good-back); }
.badge.bad { color: var(--bad); background: var(--bad-back); }
.badge.other { color: var(--other); background: var(--other-back); }
.track { position: relative; width: 9rem; height: .6rem; margin-top: .45rem; border-radius: 3px;
  background: var(--other-back); }
.track i { position: absolute; top: 0; bottom: 0; border-radius: 3px; }
.track .good { background: var(--good); }
.track .bad { background: var(--bad); }
td .when { white-space: nowrap; }
.note { color: var(--soft); font-size: .85rem; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: .86em; }
code { overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
a { color: var(--link); }
footer { color: var(--soft); font-size: .85rem; padding-bottom: 2.5rem; }
"""


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
<footer><p>Created by joblens {version} on {when}. The full machine-readable description is in
<a href="{metadata}">{metadata}</a>. Licence: {license}.</p></footer>
</body>
</html>
"""
)

Cell = str  # already escaped


def job_page(job: CrateJob, about: CrateAbout) -> str:
    record = job.record
    facts = [
        ("Status", _badge(record.status)),
        ("Started", _when(record)),
        ("Wall time", _duration(record)),
        ("CPU time", seconds(_usage(record).cpu_total_usec)),
        ("Peak memory", format_bytes(_usage(record).memory_peak_bytes)),
        ("Host", _text(_host(record))),
        ("User", _text(record.job.user)),
    ]
    body = [_facts(facts), _section("Command", f"<pre>{_text(command_line(record.job))}</pre>")]
    body += [_errors([job]), _parameters(record), _files([job]), _environments([job])]
    return _page(job_title(job), "one job", _text(record.job.cwd), body, about)


def run_page(found: CrateRun, about: CrateAbout) -> str:
    run = found.run
    attempts = [attempt for step in found.steps for attempt in step.attempts]
    done = sum(step.is_done for step in found.steps)
    facts = [
        ("Run", _run_badge(run.status.value)),
        ("Jobs completed", f"{done:,} of {len(found.steps):,}"),
        ("Attempts", f"{len(attempts):,}"),
        ("Started", "" if run.started_at_us is None else instant(run.started_at_us)),
        ("CPU time", seconds(sum(_usage(one.record).cpu_total_usec or 0 for one in attempts))),
        ("Largest job", _largest(attempts)),
        ("Host", _text(run.host)),
        ("User", _text(run.user)),
    ]
    spec = found.spec_file
    link = f'<p><a href="{_text(spec.id)}">{_text(spec.name)}</a>: the workflow file of this run.</p>'
    body = [_facts(facts), _section("Workflow", link), _section("Jobs", _jobs(found))]
    body += [_errors(attempts), _files(attempts), _environments(attempts)]
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
        when=instant(about.published_at_us),
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
    """Formats a table. `numbers`: right-aligned columns."""
    if not rows:
        return ""
    marks = ['<{} class="number">' if index in numbers else "<{}>" for index in range(len(titles))]
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
            seconds(_usage(record).cpu_total_usec),
            format_bytes(_usage(record).memory_peak_bytes),
            _text(_host(record)),
        ]


def _bar(found: CrateRun, record: Record) -> Cell:
    """Draws the time of the job within that of the run."""
    begin, end = found.run.started_at_us, found.run.ended_at_us
    if begin is None or end is None or end <= begin or record.attempt is None or record.outcome is None:
        return ""
    if record.attempt.started_at_us < begin:  # its outcome comes from an earlier run
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
    return _section("Failures", _table(("Job", "Error"), rows))


def _parameters(record: Record) -> str:
    known = {**record.job.params, **{f"seed {name}": value for name, value in record.job.seeds.items()}}
    rows = [[_text(name), f"<code>{_text(str(value))}</code>"] for name, value in known.items()]
    return _section("Parameters", _table(("Parameter", "Value"), rows))


def _files(jobs: Sequence[CrateJob]) -> str:
    """Lists each file once, with how jobs used it."""
    done: dict[str, tuple[CrateFile, set[str]]] = {}
    for job in jobs:
        for word, files in (("read", job.inputs), ("written", job.outputs)):
            for file in files:
                done.setdefault(file.id, (file, set()))[1].add(word)
    rows = [
        [
            f'<a href="{_text(file.id)}">{_text(file.name)}</a>' if file.is_inside else _text(file.name),
            " and ".join(sorted(words)),
            format_bytes(file.bytes),
            _hash(file),
            "in this crate" if file.is_inside else "not included",
        ]
        for file, words in done.values()
    ]
    return _section("Files", _table(("File", "Use", "Size", "Hash", "Where"), rows, frozenset({2})))


def _hash(file: CrateFile) -> Cell:
    name, value = ("sha256", file.sha256) if file.sha256 else ("blake2b", file.digest)
    return f'<code title="{value}">{name} {value[:16]}…</code>' if value else ""


def _environments(jobs: Sequence[CrateJob]) -> str:
    found: dict[str, Provenance] = {}
    for job in jobs:
        if job.provenance is not None and job.provenance_file is not None:
            found.setdefault(job.provenance_file.id, job.provenance)
    return _section(
        "Environment", "\n".join(_environment(ident, one) for ident, one in list(found.items())[:20])
    )


def _environment(ident: str, found: Provenance) -> str:
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
    whole = f'<p class="note">Complete: <a href="{_text(ident)}">{_text(ident)}</a></p>'
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
    return f'<span class="when">{instant(record.attempt.started_at_us)}</span>'


def _duration(record: Record) -> Cell:
    return "" if record.outcome is None else format_duration(record.outcome.duration_s)


def _usage(record: Record) -> Usage:
    return Usage() if record.outcome is None else record.outcome.usage


def _largest(jobs: Sequence[CrateJob]) -> Cell:
    peaks = [_usage(job.record).memory_peak_bytes or 0 for job in jobs if job.record.outcome is not None]
    return format_bytes(max(peaks)) if peaks else ""


def _host(record: Record) -> str:
    return "" if record.attempt is None else record.attempt.owner.host


def _text(text: str | None) -> Cell:
    return html.escape(text or "")
