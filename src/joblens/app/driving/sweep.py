"""Sweep without a file (`joblens map`): a workflow made from values, run, and its output passed on."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, json

from joblens.app.driving.checks import RunRequest, start_request
from joblens.app.driving.views import failure_of
from joblens.app.jobs.logs import read_log
from joblens.app.wiring.drivers import Warn, logs_dir, open_store_directly, store_is_there, store_name
from joblens.app.workflows.loader import LoadedSpec, loaded_run
from joblens.model.errors import InputError, JoblensError, UnknownWorkflow
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState, Run, RunOptions, RunStatus, Workflow
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.plan.commands.command_lines import MappedJob, Source
from joblens.plan.commands.parameters import BadParameter, values_of
from joblens.ports.store import Store
from joblens.views.runs.live import failure_text

_GROUP = "each"  # requirements all jobs share, so that one advice is for all of them


class EachJob(Struct, frozen=True, kw_only=True):
    """What every job of the sweep asks for, as it was typed."""

    cpus: float | None = None
    memory: str | None = None
    timeout: str | None = None


def lines_of_file(path: str) -> list[str]:
    """'-': standard input. Empty lines are no values. Raises InputError."""
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
            f":::: {path}: line {number} has a NUL character", hint="values are separated by line ends"
        )
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError(f":::: {path}: line {number} is not UTF-8 text") from None


def parameter_sources(written: Sequence[str]) -> list[Source]:
    """`name=1:10`, `name=[a,b]` or `name=a,b`."""
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
    asked: dict[str, Any] = {"name": _GROUP}
    asked |= {
        key: value
        for key, value in (("num_cpus", each.cpus), ("memory", each.memory), ("runtime", each.timeout))
        if value is not None
    }
    document = {
        "name": name,
        "resource_monitor": {"sample_interval_seconds": 1},
        "resource_requirements": [asked],
        "jobs": [{"name": job.name, "command": job.command, "resource_requirements": _GROUP} for job in jobs],
    }
    text = json.format(json.encode(document), indent=1).decode()
    # read back as any stored run is: what `resume` will find is what is run now
    stored = Run(uuid=new_uuid(), workflow_uuid="", created_at_us=0, spec_text=text, spec_format="json")
    return loaded_run(stored)


def create_map(
    settings: Settings,
    config: str | None,
    loaded: LoadedSpec,
    options: RunOptions,
    *,
    is_named: bool,
    warn: Warn,
) -> Run:
    """A run of a new workflow; of the one of that name where it was named and came from no file either."""
    workflow = None
    if is_named and store_is_there(settings):
        store = open_store_directly(settings, warn)
        try:
            workflow = _known(store, loaded.plan.name)
        finally:
            store.close()
    return start_request(map_request(loaded, options), workflow or "", settings, config, None, warn)


def map_request(loaded: LoadedSpec, options: RunOptions) -> RunRequest:
    return RunRequest(loaded=loaded, options=options)


def _known(store: Store, name: str) -> Workflow | None:
    try:
        found = store.find_workflow(name)
    except (UnknownWorkflow, InputError):
        return None
    return found if found.name == name and not found.source else None


def output_dir_of(settings: Settings, chosen: str | None) -> str:
    """Beside the store unless said otherwise: a sweep from a command line leaves nothing in the directory."""
    if chosen is not None:
        return os.path.abspath(chosen)
    return os.path.join(os.path.abspath(logs_dir(store_name(settings))), "map")


class MapView:
    """Passes on what jobs print, each job's as one piece, when it has ended."""

    def __init__(self, *, keeps_order: bool, count: int, say: Callable[[str], None] | None) -> None:
        self._keeps_order = keeps_order
        self._say = say
        self._ended: dict[int, Record | None] = {}
        self._next = 0
        self._count = count

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        if state.is_final and index not in self._ended:
            self._ended[index] = None  # it never ran: nothing to print, nothing to wait for
            self._pass_on()

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        """Jobs that others added print in their own files alone."""

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        pass

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        if not self._keeps_order:
            self._ended[index] = None
            self._print(record)
            return
        self._ended[index] = record
        self._pass_on()

    def _pass_on(self) -> None:
        while self._keeps_order and self._next in self._ended:
            record = self._ended[self._next]
            if record is not None:
                self._ended[self._next] = None
                self._print(record)
            self._next += 1

    def note(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def tick(self) -> None:
        pass

    def close(self, status: RunStatus) -> None:
        for index in range(self._next, self._count):
            record = self._ended.get(index)
            if record is not None:
                self._print(record)

    def _print(self, record: Record) -> None:
        for stream, descriptor in (("stdout", 1), ("stderr", 2)):
            _copy(record, stream, descriptor)
        if record.status is not Status.SUCCESS and self._say is not None:
            index = record.job.run.index if record.job.run else 0
            self._say(failure_text(failure_of(index, 1, record)))


def _copy(record: Record, stream: str, descriptor: int) -> None:
    try:
        for chunk in read_log(record, stream, None):
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]
    except (JoblensError, OSError):
        pass  # the job printed nothing, or whoever read it has gone: the jobs go on
