"""Import of Slurm accounting records into the store: from sacct itself, or from its text."""

import datetime as dt
import re
import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from joblens.analysis.slurm.records import slurm_record
from joblens.analysis.slurm.text import jobs_of, read_sacct, sacct_header
from joblens.app.reports.imports import Advance, ImportResult, is_recorded, lines_of, writes_of
from joblens.model.clusters.slurm import SlurmJob, SlurmRow
from joblens.model.errors import FormatError, InputError
from joblens.model.values.units import parse_instant
from joblens.model.writes import Write
from joblens.ports.store import Store
from joblens.runners.slurm.commands import SlurmCommands

_FROM_NOW = re.compile(r"now\s*([+-])\s*(\d{1,6})\s*([a-z]*)")
_UNITS = ("seconds", "minutes", "hours", "days", "weeks")
_AGO_DAYS = {"today": 0, "midnight": 0, "yesterday": 1}


def slurm_instant(text: str, now_us: int) -> int:
    """Parses 'today', 'yesterday', 'now-7days' (in the local time zone), or any other time, into µs UTC.
    Raises InputError."""
    word = text.strip().lower()
    now = dt.datetime.fromtimestamp(now_us / 1e6).astimezone()
    if word == "now":
        return now_us
    if word in _AGO_DAYS:
        day = now.date() - dt.timedelta(days=_AGO_DAYS[word])
        return round(dt.datetime(day.year, day.month, day.day).astimezone().timestamp()) * 1_000_000
    if (match := _FROM_NOW.fullmatch(word)) is not None:
        return now_us + int(match[1] + "1") * int(match[2]) * _seconds_in(match[3], text) * 1_000_000
    return parse_instant(text, now_us)


def _seconds_in(unit: str, text: str) -> int:
    """Slurm accepts any prefix of a unit's name; seconds if there is none."""
    for name in _UNITS:
        if name.startswith(unit):
            return int(dt.timedelta(**{name: 1}).total_seconds())
    raise InputError(
        f"'{text}' is not a time: unknown unit '{unit}'", hint="write now-7days, now-12hours, yesterday"
    )


_BATCH = 500
_WINDOW_S = 86400  # sacct is called for one day at a time: its answer is held in memory
_ANSWER_S = 600.0
_NEEDED = {
    "an id": ("jobid",),
    "a state": ("state",),
    "when it was submitted or started": ("submit", "start"),
    "how long it took": ("elapsed", "elapsedraw", "end"),
}
OUR_OWN = "joblens"  # prefix of the comment of jobs that joblens itself submitted
HOW_TO_WRITE = "SLURM_TIME_FORMAT=%s sacct -P -D --format=ALL"


class SlurmPast(Struct, frozen=True, kw_only=True):
    """Which jobs of sacct. Times as people write them."""

    since: str = "30d"
    until: str = ""
    users: tuple[str, ...] = ()  # () and not all_users: one's own
    all_users: bool = False
    cluster: str = ""


def import_slurm(
    store: Store, paths: Sequence[str], past: SlurmPast, result: ImportResult, advance: Advance
) -> None:
    jobs = _jobs_in_files(paths, result, advance) if paths else _jobs_of_sacct(past, advance)
    _take(store, jobs, past.cluster, result)


def _take(store: Store, jobs: Iterable[SlurmJob], cluster: str, result: ImportResult) -> None:
    """Jobs of joblens itself are already in the store, and better."""
    batch: list[Write] = []
    seen: set[str] = set()
    for job in jobs:
        record = slurm_record(job, cluster)
        uuid = record.job.uuid
        if uuid in seen:
            continue
        seen.add(uuid)
        if record.outcome is None:
            result.unfinished += 1
        elif job.row.comment.startswith(OUR_OWN) or is_recorded(store, record):
            result.known += 1
        else:
            batch += writes_of(record, None)
            result.jobs += 1
        if len(batch) >= _BATCH:
            store.apply(batch)
            batch = []
    store.apply(batch)


def _jobs_of_sacct(past: SlurmPast, advance: Advance) -> Iterator[SlurmJob]:
    now_us = time.time_ns() // 1000
    begin = slurm_instant(past.since, now_us) // 1_000_000
    end = (slurm_instant(past.until, now_us) if past.until else now_us) // 1_000_000
    if begin >= end:
        raise InputError(f"--since {past.since} is not before {past.until or 'now'}")
    commands = SlurmCommands(wait_s=_ANSWER_S)
    _check_names(past, commands)
    options = ["--duplicates"]
    if past.all_users:
        options.append("--allusers")
    elif past.users:
        options.append(f"--user={','.join(past.users)}")
    if past.cluster:
        options.append(f"--clusters={past.cluster}")
    while begin < end:
        until = min(begin + _WINDOW_S, end)
        window = [f"--starttime={_local(begin)}", f"--endtime={_local(until)}"]
        for job in commands.sacct(None, *options, *window):
            advance(1 + len(job.steps))
            yield job
        begin = until


def _check_names(past: SlurmPast, commands: SlurmCommands) -> None:
    """For an unknown cluster sacct returns no jobs and no error."""
    import pwd

    for name in past.users:
        try:
            pwd.getpwnam(name)
        except KeyError:
            if not name.isdecimal():
                hint = "use --all-users for all; deleted users can be given by number"
                raise InputError(f"--user {name}: this machine has no such user", hint=hint) from None
    if not past.cluster:
        return
    known = commands.clusters()
    if known and past.cluster not in known:
        raise InputError(
            f"--cluster {past.cluster}: Slurm knows no such cluster", hint=f"it knows {', '.join(known)}"
        )


def _local(seconds: int) -> str:
    """sacct uses local time."""
    return dt.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _jobs_in_files(paths: Sequence[str], result: ImportResult, advance: Advance) -> Iterator[SlurmJob]:
    for path in paths:
        yield from jobs_of(_rows(path, result, advance))


def _rows(path: str, result: ImportResult, advance: Advance) -> Iterator[SlurmRow]:
    lines = (line.decode("utf-8", "replace") for _, line in lines_of(path, result))
    first = next(lines, None)
    header = None if first is None else sacct_header(first)
    if header is None:
        raise FormatError(
            f"{path}: does not begin with the names of sacct's columns", hint=f"write it with {HOW_TO_WRITE}"
        )
    fields, separator = header
    _check_fields(path, fields)
    for number, row in read_sacct(lines, fields, separator):
        advance(1)
        if row is None:
            result.add_problem(
                f"{path}:{number + 1}", FormatError("the number of values differs from the number of columns")
            )
        else:
            yield row


def _check_fields(path: str, fields: Sequence[str]) -> None:
    there = {name.lower() for name in fields}
    missing = [what for what, names in _NEEDED.items() if not there.intersection(names)]
    if missing:
        raise FormatError(
            f"{path}: has no column for {' or '.join(missing)}", hint=f"write it with {HOW_TO_WRITE}"
        )
