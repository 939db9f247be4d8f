"""Slurm text parsers: instants, node lists, and the output of squeue, sinfo and sacct.

Commands are called with fixed fields and separators that occur in no name, so that neither the version nor
the user's SQUEUE_FORMAT changes the output. A value that cannot be parsed is unknown.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from joblens.model.clusters.allocation import expand_node_list
from joblens.model.clusters.slurm import (
    ENDED_STATES,
    WAITING_STATES,
    Partition,
    QueuedJob,
    SlurmJob,
    SlurmRow,
)
from joblens.model.clusters.slurm_notation import gpus_in, slurm_bytes, slurm_seconds
from joblens.model.errors import InputError

SEPARATOR = "\x1f"
NOTHING = frozenset(("", "N/A", "None", "(null)", "Unknown", "NONE", "INVALID", "None assigned"))

SQUEUE_FIELDS = tuple(f"%{letter}" for letter in "iATrjkuPaqNDCVSlL")
SQUEUE_FORMAT = SEPARATOR.join(SQUEUE_FIELDS)
SINFO_FIELDS = tuple(f"%{letter}" for letter in "RPlLDcmGT")
SINFO_FORMAT = SEPARATOR.join(SINFO_FIELDS)


def slurm_instant_us(text: str) -> int | None:
    """Parses seconds since 1970 (SLURM_TIME_FORMAT=%s) or 2026-11-16T02:27:59, as UTC."""
    stripped = text.strip()
    if stripped.isdigit():
        return int(stripped) * 1_000_000 or None
    try:
        moment = dt.datetime.fromisoformat(stripped)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1_000_000)


def node_names(text: str) -> tuple[str, ...]:
    """Expands n[1-3,7],gpu01 -> n1 n2 n3 n7 gpu01; returns unparsable text unchanged."""
    if text.strip() in NOTHING:
        return ()
    try:
        return expand_node_list(text)
    except InputError:
        return (text.strip(),)


def tres(text: str) -> dict[str, str]:
    """Parses cpu=2,mem=200M,gres/gpu:a100=1."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def gpus_of(counts: Mapping[str, str]) -> int | None:
    """Sums all kinds: gres/gpu is the total, if listed besides gres/gpu:a100."""
    if (whole := slurm_count(counts.get("gres/gpu", ""))) is not None:
        return whole
    kinds = [slurm_count(value) or 0 for name, value in counts.items() if name.startswith("gres/gpu:")]
    return sum(kinds) if kinds else None


def read_squeue(text: str) -> list[QueuedJob]:
    return [_queued(values) for values in _rows(text, len(SQUEUE_FIELDS))]


def _queued(values: Sequence[str]) -> QueuedJob:
    values_by_field = {
        field: "" if value.strip() in NOTHING else value.strip() for field, value in _paired(values)
    }
    return QueuedJob(
        job_id=values_by_field["%i"],
        raw_id=values_by_field["%A"],
        state=values_by_field["%T"].partition(" ")[0],
        reason=values_by_field["%r"],
        name=values_by_field["%j"],
        comment=values_by_field["%k"],
        user=values_by_field["%u"],
        partition=values_by_field["%P"],
        account=values_by_field["%a"],
        qos=values_by_field["%q"],
        nodes=node_names(values_by_field["%N"]),
        node_count=slurm_count(values_by_field["%D"]),
        cpus=slurm_count(values_by_field["%C"]),
        submitted_at_us=slurm_instant_us(values_by_field["%V"]),
        starts_at_us=slurm_instant_us(values_by_field["%S"]),
        time_limit_s=slurm_seconds(values_by_field["%l"]),
        time_left_s=slurm_seconds(values_by_field["%L"]),
    )


def _paired(values: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(SQUEUE_FIELDS, values, strict=True)


def read_sinfo(text: str) -> list[Partition]:
    found = []
    for values in _rows(text, len(SINFO_FIELDS)):
        values_by_field = dict(zip(SINFO_FIELDS, (value.strip() for value in values), strict=True))
        found.append(
            Partition(
                name=values_by_field["%R"],
                is_default=values_by_field["%P"].endswith("*"),
                max_time_s=slurm_seconds(values_by_field["%l"]),
                default_time_s=slurm_seconds(values_by_field["%L"]),
                nodes=slurm_count(values_by_field["%D"]) or 0,
                cpus_per_node=slurm_count(values_by_field["%c"].rstrip("+")) or 0,
                memory_per_node_bytes=slurm_bytes(values_by_field["%m"].rstrip("+"), "M") or 0,
                gpus_per_node=gpus_in(values_by_field["%G"]),
                state=values_by_field["%T"],
            )
        )
    return found


def _rows(text: str, count: int) -> Iterator[list[str]]:
    rows = numbered_rows(text.split("\n"), count, SEPARATOR)
    return (values for _, values in rows if len(values) == count)


def numbered_rows(lines: Iterable[str], count: int, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Joins lines until a row has all its values: a name or a comment may contain a line break."""
    held, first = "", 0
    for number, ended_line in enumerate(lines, start=1):
        line = ended_line.rstrip("\r\n")
        if not held:
            if not line.strip():
                continue
            first = number
        held = f"{held}\n{line}" if held else line
        if held.count(separator) >= count - 1:
            # With -p a row ends with a separator too.
            values = held.split(separator)
            yield first, values[:-1] if len(values) == count + 1 and not values[-1] else values
            held = ""
    if held.strip():
        yield first, held.split(separator)


def slurm_count(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


# Only fields that this version of sacct knows are requested.
_SACCT_FIELDS = """
    JobID JobIDRaw Cluster JobName User Group Account Partition QOS State ExitCode Reason Comment WorkDir
    SubmitLine Submit Start End ElapsedRaw Elapsed TimelimitRaw Timelimit AllocCPUS ReqCPUS NNodes
    NTasks NodeList ReqMem ReqTRES AllocTRES UserCPU SystemCPU TotalCPU MaxRSS MaxDiskRead MaxDiskWrite
    TRESUsageInMax TRESUsageInTot TRESUsageOutTot Restarts
"""
SACCT_FIELDS = tuple(_SACCT_FIELDS.split())

_FREE_TEXT = ("submitline", "jobname", "comment", "workdir", "admincomment", "systemcomment")
_STATES = ENDED_STATES | WAITING_STATES | {"RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STAGE_OUT"}


def read_sacct(
    lines: Iterable[str], fields: Sequence[str], separator: str = SEPARATOR
) -> Iterator[tuple[int, SlurmRow | None]]:
    """Yields each line with its row; None: too many or too few values."""
    for number, values in numbered_rows(lines, len(fields), separator):
        values_by_field = _said(fields, values, separator)
        yield (
            number,
            None if values_by_field is None or not values_by_field.get("jobid") else _row(values_by_field),
        )


def _said(fields: Sequence[str], values: Sequence[str], separator: str) -> dict[str, str] | None:
    names = [name.lower() for name in fields]
    if len(values) == len(names):
        pairs = zip(names, values, strict=True)
        return {name: "" if value.strip() in NOTHING else value.strip() for name, value in pairs}
    more = len(values) - len(names)
    # A command or name contains the separator. Joined at the right one, the state is valid.
    for column in _FREE_TEXT if more > 0 and "state" in names else ():
        if column in names:
            at = names.index(column)
            whole = [*values[:at], separator.join(values[at : at + more + 1]), *values[at + more + 1 :]]
            if whole[names.index("state")].split(" ")[0] in _STATES:
                return _said(fields, whole, separator)
    return None


def _row(values_by_field: Mapping[str, str]) -> SlurmRow:
    def get(name: str) -> str:
        return values_by_field.get(name.lower(), "")

    state, _, by = get("State").partition(" by ")
    limit = slurm_seconds(get("Timelimit"))
    minutes = slurm_count(get("TimelimitRaw"))
    elapsed = _number(get("ElapsedRaw"))
    return SlurmRow(
        job_id=get("JobID"),
        raw_id=get("JobIDRaw"),
        cluster=get("Cluster"),
        name=get("JobName"),
        user=get("User"),
        group=get("Group"),
        account=get("Account"),
        partition=get("Partition"),
        qos=get("QOS"),
        state=state.rstrip("+").strip(),
        cancelled_by=by.strip(),
        exit_code=get("ExitCode"),
        reason=get("Reason"),
        comment=get("Comment"),
        work_dir=get("WorkDir"),
        submit_line=get("SubmitLine"),
        submitted_at_us=slurm_instant_us(get("Submit")),
        started_at_us=slurm_instant_us(get("Start")),
        ended_at_us=slurm_instant_us(get("End")),
        elapsed_s=slurm_seconds(get("Elapsed")) if elapsed is None else elapsed,
        time_limit_s=minutes * 60.0 if minutes is not None else limit,
        allocated_cpus=slurm_count(get("AllocCPUS")),
        asked_cpus=slurm_count(get("ReqCPUS")),
        node_count=slurm_count(get("NNodes")),
        task_count=slurm_count(get("NTasks")),
        nodes=node_names(get("NodeList")),
        asked_memory=get("ReqMem"),
        asked_tres=tres(get("ReqTRES")),
        allocated_tres=tres(get("AllocTRES")),
        user_cpu_usec=_usec(get("UserCPU")),
        system_cpu_usec=_usec(get("SystemCPU")),
        total_cpu_usec=_usec(get("TotalCPU")),
        max_rss_bytes=slurm_bytes(get("MaxRSS")),
        max_disk_read_bytes=slurm_bytes(get("MaxDiskRead")),
        max_disk_write_bytes=slurm_bytes(get("MaxDiskWrite")),
        used_in_max=tres(get("TRESUsageInMax")),
        used_in_total=tres(get("TRESUsageInTot")),
        used_out_total=tres(get("TRESUsageOutTot")),
        restarts=slurm_count(get("Restarts")),
    )


def sacct_header(line: str) -> tuple[list[str], str] | None:
    """Returns the columns and their separator; None: not the first line of sacct -P."""
    text = line.strip("\r\n\ufeff ")
    known = {name.lower() for name in SACCT_FIELDS}
    match = re.match(r"([A-Za-z]+)([^A-Za-z]{1,4})[A-Za-z]", text)
    if match is None or not match[2].strip(" "):
        return None
    names = [name.strip() for name in text.split(match[2])]
    if not names[-1]:
        names.pop()  # of -p, which ends with a separator
    is_header = sum(name.lower() in known for name in names) >= 2 and "jobid" in map(str.lower, names)
    return (names, match[2]) if is_header else None


def jobs_of(rows: Iterable[SlurmRow]) -> Iterator[SlurmJob]:
    """Steps follow their job; of one that was requeued each time with its own steps."""
    row: SlurmRow | None = None
    steps: list[SlurmRow] = []
    for one in rows:
        if one.is_step:
            if row is not None and one.of_job == row.job_id:
                steps.append(one)
            continue
        if row is not None:
            yield SlurmJob(row=row, steps=tuple(steps))
        row, steps = one, []
    if row is not None:
        yield SlurmJob(row=row, steps=tuple(steps))


def _usec(text: str) -> int | None:
    seconds = slurm_seconds(text)
    return None if seconds is None else round(seconds * 1_000_000)


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
