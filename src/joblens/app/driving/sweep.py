"""Sweep without a file (`joblens map`): a workflow made from values."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from joblens.app.wiring.drivers import logs_dir, store_name
from joblens.app.workflows.loader import LoadedSpec, loaded_run
from joblens.model.errors import InputError, UnknownWorkflow
from joblens.model.runs.run import Run, Workflow
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.plan.commands.command_lines import MappedJob, Source
from joblens.plan.commands.parameters import BadParameter, values_of
from joblens.ports.store import Store

_GROUP = "each"  # requirements that all jobs share, so that one piece of advice covers all of them


class EachJob(Struct, frozen=True, kw_only=True):
    """Requirements of every job of the sweep, as typed."""

    cpus: float | None = None
    memory: str | None = None
    timeout: str | None = None


def lines_of_file(path: str) -> list[str]:
    """'-': standard input. Skips empty lines. Raises InputError."""
    try:
        if path == "-":
            content = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                content = file.read()
    except OSError as error:
        raise InputError(f":::: {path}: cannot be read: {error.strerror}") from error
    lines = [
        _text_of_line(path, number, line.removesuffix(b"\r"))
        for number, line in enumerate(content.split(b"\n"), 1)
    ]
    values = [line for line in lines if line]
    if not values:
        raise InputError(f":::: {path}: has no lines", hint="write one value per line")
    return values


def _text_of_line(path: str, number: int, line: bytes) -> str:
    if b"\0" in line:
        raise InputError(
            f":::: {path}: line {number} has a NUL character", hint="values are separated by line endings"
        )
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError(f":::: {path}: line {number} is not UTF-8 text") from None


def parameter_sources(written: Sequence[str]) -> list[Source]:
    """Parses `name=1:10`, `name=[a,b]` or `name=a,b`."""
    sources = []
    for text in written:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(
                f"--param {text}: expected NAME=VALUES", hint="--param x=1:10 or --param x=a,b,c"
            )
        listed = f"[{value}]" if "," in value and not value.startswith("[") else value
        try:
            values = values_of(listed, {})
        except BadParameter as error:
            raise InputError(f"--param {text}: {error}") from error
        sources.append(Source(tuple(str(one) for one in values), name=name))
    return sources


def spec_of(name: str, jobs: Sequence[MappedJob], each: EachJob) -> LoadedSpec:
    requirements: dict[str, Any] = {"name": _GROUP}
    requirements |= {
        key: value
        for key, value in (("num_cpus", each.cpus), ("memory", each.memory), ("runtime", each.timeout))
        if value is not None
    }
    document = {
        "name": name,
        "resource_monitor": {"sample_interval_seconds": 1},
        "resource_requirements": [requirements],
        "jobs": [{"name": job.name, "command": job.command, "resource_requirements": _GROUP} for job in jobs],
    }
    text = json.format(json.encode(document), indent=1).decode()
    # Read back like any stored run: `resume` will find what runs now.
    stored = Run(uuid=new_uuid(), workflow_uuid="", created_at_us=0, spec_text=text, spec_format="json")
    return loaded_run(stored)


def workflow_without_file(store: Store, name: str) -> Workflow | None:
    """Returns the workflow of that name without a file: a sweep of the same name is its next run."""
    try:
        found = store.find_workflow(name)
    except (UnknownWorkflow, InputError):
        return None
    return found if found.name == name and not found.source else None


def output_dir_of(settings: Settings, option: str | None) -> str:
    """Next to the store by default: a sweep from a command line writes nothing to the current directory."""
    if option is not None:
        return os.path.abspath(option)
    return os.path.join(os.path.abspath(logs_dir(store_name(settings))), "map")
