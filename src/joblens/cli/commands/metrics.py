"""`joblens metrics`: every sample of a job from its start, then live until it ends."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import job_argument, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.jobs.details import GpuFacts
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample


@click.command("metrics", cls=GroupedCommand)
@job_argument
@click.option("--follow/--no-follow", default=True, help="Print new samples until the job ends (default).")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only samples since WHEN: a time, an age such as 5m, or +30s after the job's start.",
)
@click.option(
    "--fields",
    metavar="A,B.C",
    help="Print only these keys as JSON lines, such as timestamp,cpu.usage_percent.",
)
@click.option("--table", is_flag=True, help="Print one line per sample: CPU, memory, I/O, network, GPU.")
@shared_options
def command(
    session: Session, ident: str, follow: bool, since: str | None, fields: str | None, table: bool
) -> None:
    """Print every sample of a job from its start; while it runs, follow it until it ends."""
    from joblens.app.jobs.queries import find, follow_samples

    paths = _paths_of(fields)
    if table and (session.json or paths):
        raise InputError("--table cannot be combined with --json or --fields")
    store = session.current_store
    record = find(store, ident, session.note)
    from_us = None if since is None else _since_us(since, record)
    stream = (
        follow_samples(store, record.job.uuid, session.recover_orphans)
        if follow
        else iter(store.samples(record.job.uuid))
    )
    selected = ((sample, from_us is None or sample.at_us >= from_us) for _, sample in stream)
    if table:
        shown = _write_table(session, selected, record)
    else:
        shown = _write_samples(session, selected, record, paths)
    if not shown and not session.json:
        session.note(f"no samples of job {record.job.uuid}" + (" from then on" if since else ""))


def _write_table(session: Session, stream: Iterable[tuple[Sample, bool]], record: Record) -> int:
    """Returns how many samples were shown; skipped ones serve as baseline of the first rates."""
    from joblens.views.jobs.metrics import SampleTable

    has_gpu = bool(session.store.details(record.job.uuid).gpus)
    table = SampleTable(session.palette, interval_s=record.job.interval_s, has_gpu=has_gpu)
    shown = 0
    for sample, is_selected in stream:
        if not is_selected:
            table.skip(sample)
            continue
        session.write_lines(list(table.lines(sample)))
        session.flush()
        shown += 1
    return shown


def _write_samples(
    session: Session, stream: Iterable[tuple[Sample, bool]], record: Record, paths: list[list[str]]
) -> int:
    from joblens.views.jobs.metrics import render_sample

    store = session.store
    previous: Sample | None = None
    gpu_before: Sample | None = None
    gpus: Sequence[GpuFacts] = ()
    shown = 0
    for sample, is_selected in stream:
        if sample.gpus and not gpus:  # for a running job they come with their first reading
            gpus = store.details(record.job.uuid).gpus or ()
        if is_selected:
            if session.json or paths:
                _write_form(session, sample, previous, record, paths, gpus)
            else:
                text = render_sample(sample, previous, record, session.palette, gpus, gpu_before)
                session.write_lines([*text, ""])
                session.flush()
            shown += 1
        gpu_before = gpu_before if sample.gpus is None else sample
        previous = sample
    return shown


def _write_form(
    session: Session,
    sample: Sample,
    previous: Sample | None,
    record: Record,
    paths: list[list[str]],
    gpus: Sequence[GpuFacts],
) -> None:
    from joblens.analysis.formats.sample import to_sample_object

    form = to_sample_object(sample, previous, record, gpus)
    session.write_json_line(pick(form, paths) if paths else form)


def _since_us(text: str, record: Record) -> int:
    from joblens.app.wiring.drivers import SystemClock
    from joblens.model.values.units import parse_duration, parse_instant

    if text.startswith("+"):
        start_us = record.attempt.started_at_us if record.attempt is not None else record.job.created_at_us
        return start_us + round(parse_duration(text[1:]) * 1_000_000)
    return parse_instant(text, SystemClock().now_us())


def _paths_of(fields: str | None) -> list[list[str]]:
    if fields is None:
        return []
    names = [name.strip() for name in fields.split(",") if name.strip()]
    if not names:
        raise InputError("--fields is empty", hint="for example: --fields timestamp,cpu.usage_percent")
    return [name.split(".") for name in names]


def pick(form: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """Returns the values at these paths, still nested; an unknown name is an error that lists all keys."""
    result: dict[str, Any] = {}
    for path in paths:
        source: Any = form
        target = result
        for depth, key in enumerate(path):
            if not isinstance(source, dict) or key not in source:
                raise _no_such_field(path, depth, source)
            source = source[key]
            if depth == len(path) - 1:
                target[key] = source
            else:
                target = target.setdefault(key, {})
    return result


def _no_such_field(path: list[str], depth: int, source: Any) -> InputError:
    known = ", ".join(source) if isinstance(source, dict) else "none"
    within = f" in '{'.'.join(path[:depth])}'" if depth else ""
    return InputError(f"samples have no field '{'.'.join(path)}'", hint=f"fields{within}: {known}")
