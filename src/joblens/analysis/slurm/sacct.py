"""The lines of sacct, read: jobs and their steps. Its columns are known by their names, in any order."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from joblens.analysis.slurm.text import (
    NOTHING,
    SEPARATOR,
    node_names,
    numbered_rows,
    slurm_bytes,
    slurm_count,
    slurm_instant_us,
    slurm_seconds,
    tres,
)
from joblens.model.clusters.slurm import ENDED_STATES, WAITING_STATES, SlurmJob, SlurmRow

# Those that this version of sacct knows are asked for.
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
    """(line, row) of each; None where there are too many or too few values."""
    for number, values in numbered_rows(lines, len(fields), separator):
        said = _said(fields, values, separator)
        yield number, None if said is None or not said.get("jobid") else _row(said)


def _said(fields: Sequence[str], values: Sequence[str], separator: str) -> dict[str, str] | None:
    names = [name.lower() for name in fields]
    if len(values) == len(names):
        pairs = zip(names, values, strict=True)
        return {name: "" if value.strip() in NOTHING else value.strip() for name, value in pairs}
    more = len(values) - len(names)
    # Somebody has the separator in a command or a name. Put together at the right one, the state is a state.
    for column in _FREE_TEXT if more > 0 and "state" in names else ():
        if column in names:
            at = names.index(column)
            whole = [*values[:at], separator.join(values[at : at + more + 1]), *values[at + more + 1 :]]
            if whole[names.index("state")].split(" ")[0] in _STATES:
                return _said(fields, whole, separator)
    return None


def _row(said: Mapping[str, str]) -> SlurmRow:
    def get(name: str) -> str:
        return said.get(name.lower(), "")

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
    """The names of the columns and what stands between them; None: it is not the first line of sacct -P."""
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
