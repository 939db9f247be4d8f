"""The script that Slurm runs for a place: what the site needs first, then a worker in its stead.

It names one private file and has nothing else in it: scripts can be read with `scontrol`. Paths are whole and
nothing comes from the environment of whoever submitted it, so that --export=NONE changes nothing."""

import re
import shlex
from collections.abc import Mapping, Sequence

from joblens.model.redaction.secrets import redact_text

_NODES = "${SLURM_JOB_NUM_NODES:-1}"
_LONGEST_NAME = 64  # letters: squeue and mails show names in one line
_LEAST_OF_WORKFLOW = 16  # letters of the workflow's name that stay beside a long name of a job
_CPUS = "${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}"


def batch_script(
    argv: Sequence[str],
    *,
    setup: str = "",
    env: Mapping[str, str] | None = None,
    on_each_node: bool = False,
    time_s: float | None = None,
) -> str:
    """`time_s`: how long the place lasts. Older Slurms do not tell their jobs when they end."""
    lines = ["#!/bin/sh"]
    if time_s is not None:
        lines.append(f"export SLURM_JOB_END_TIME=${{SLURM_JOB_END_TIME:-$(($(date +%s) + {int(time_s)}))}}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    if setup.strip():
        lines.append(setup.strip("\n"))
    worker = shlex.join(argv)
    if on_each_node:
        # All of each node's part goes to its worker, which shares it out; one that fails ends no other.
        lines.append(
            f"exec srun --export=ALL --overlap --nodes={_NODES} --ntasks={_NODES} --ntasks-per-node=1"
            f" --cpus-per-task={_CPUS} --mem=0 --cpu-bind=none --kill-on-bad-exit=0 --input=none {worker}"
        )
    else:
        lines.append(f"exec {worker} </dev/null")
    return "\n".join(lines) + "\n"


def job_name(workflow: str, job: str) -> str:
    """Returns the name of a job in Slurm: `train:fit_3`, without secrets, in one word."""
    first, second = _word(workflow), _word(job)
    if len(first) + len(second) + 1 > _LONGEST_NAME:
        first = first[: max(_LEAST_OF_WORKFLOW, _LONGEST_NAME - 1 - len(second))]
        second = _shortened(second, _LONGEST_NAME - 1 - len(first))
    return ":".join(part for part in (first, second) if part) or "joblens"


def _word(text: str) -> str:
    """Slurm takes any name; squeue and scripts that read it do not."""
    safe = (letter if letter.isprintable() and not letter.isspace() else "_" for letter in redact_text(text))
    return "".join(safe)


def _shortened(text: str, length: int) -> str:
    """Keeps the beginning and the end: values of parameters are at the end."""
    if len(text) <= length:
        return text
    end = length // 2
    return f"{text[: length - end - 1]}…{text[-end:]}"


def allocation_name(workflow: str, scheduler: str, run: str = "") -> str:
    """Returns the name of an allocation that jobs share. `run`: keeps it apart from those of other runs."""
    return job_name(workflow, (scheduler or "allocation") + (f".{run}" if run else ""))


def array_name(workflow: str, names: Sequence[str]) -> str:
    """Returns what the names of a sweep's jobs begin with; of one job, its name."""
    first, last = min(names), max(names)
    same = next(
        (place for place, letter in enumerate(first) if last[place : place + 1] != letter), len(first)
    )
    shared = first[:same].rstrip("0123456789").rstrip("_-. ") or first
    return job_name(workflow, shared if len(names) > 1 else first)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """To sort job_2 before job_10."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name))
