"""Python API for commands: run one or many from a script, and get results with their usage."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionOrder
from joblens.agent.session.pool import SessionPool
from joblens.agent.slots.loop import SlotPlan
from joblens.agent.slots.pool import SlotPool
from joblens.agent.slots.slot import SlotJob
from joblens.app.jobs.epilog import apply_retention
from joblens.app.jobs.preparation import DEFAULT_INTERVAL_S, PreparedJob, SubmitEnvironment, prepare
from joblens.app.jobs.requests import (
    Request,
    check_request,
    command_of,
    container_of,
    count_of,
    mapping_of,
    memory_of,
    seconds_of,
    tags_of,
    texts_of,
)
from joblens.app.wiring.agent_context import OwnLog, close_context, open_context
from joblens.app.wiring.drivers import logs_root
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import InputError, JoblensError
from joblens.model.jobs.job import Accounting, ContainerJob, Finding, Record, Requirements, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.settings import Settings


class Result:
    """One ended job. `record` has everything; the other attributes are its most used parts."""

    def __init__(self, record: Record, settings: Settings) -> None:
        self.record = record
        self._settings = settings

    @property
    def uuid(self) -> str:
        return self.record.job.uuid

    @property
    def status(self) -> str:
        return str(self.record.status)

    @property
    def ok(self) -> bool:
        return self.status == "success"

    @property
    def returncode(self) -> int | None:
        return self.record.outcome.exit_code if self.record.outcome else None

    @property
    def duration_s(self) -> float:
        return self.record.outcome.duration_s if self.record.outcome else 0.0

    @property
    def usage(self) -> Usage:
        return self.record.outcome.usage if self.record.outcome else Usage()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.record.outcome.findings if self.record.outcome else ()

    @property
    def profile(self) -> dict[str, Any]:
        """Returns the detailed profile, from the samples and totals."""
        from joblens.analysis.numbers.profile import detailed_profile

        stored = self.record.outcome.profile if self.record.outcome else None
        return stored or detailed_profile(self.samples, self.usage, self.duration_s)

    @property
    def samples(self) -> list[Sample]:
        from joblens.app.wiring.drivers import open_store

        store = open_store(self._settings)
        try:
            return [sample for _, sample in store.samples(self.uuid)]
        finally:
            store.close()

    @property
    def stdout(self) -> str:
        return self._printed("stdout.log")

    @property
    def stderr(self) -> str:
        return self._printed("stderr.log")

    def as_dict(self) -> dict[str, Any]:
        """Returns the record in the history form."""
        from joblens.analysis.formats.history import to_history_record

        return to_history_record(self.record)

    def _printed(self, name: str) -> str:
        folder = self.record.attempt.logs_dir if self.record.attempt else ""
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def __repr__(self) -> str:
        return f"<Result {self.record.job.name!r} {self.status} {self.duration_s:.3f} s>"


class JobFailed(JoblensError):
    """The job did not succeed."""

    def __init__(self, result: Result) -> None:
        outcome = result.record.outcome
        why = outcome.error if outcome else None
        super().__init__(f"{result.record.job.name}: {result.status}: {why or 'no reason known'}")
        self.result = result


def session_order(prepared: PreparedJob, context: AgentContext, settings: Settings) -> SessionOrder:
    """Returns the job with its output in files of its own."""
    context.add_secrets(prepared.secrets, prepared.job.uuid)
    return SessionOrder(
        job=prepared.job,
        plan=LaunchPlan(argv=prepared.argv, env=prepared.env, cwd=prepared.cwd),
        folder=os.path.join(logs_root(settings), prepared.job.uuid),
        output_max_bytes=settings.output.max_size,
    )


class SequentialRunner:
    """`with SequentialRunner(settings) as jobs: jobs.run(prepared)`. Output of jobs goes to their files."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._log = OwnLog(settings.logs)
        self._context = open_context(settings, warn=self._log.warn)

    def run(self, prepared: PreparedJob) -> Result:
        """An exception while it runs (KeyboardInterrupt) stops the job first, and is recorded."""
        (record,) = SessionPool(self._context, 1).run(
            [session_order(prepared, self._context, self._settings)]
        )
        self._log.ended(record)
        return Result(record, self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._context, self._settings)


__all__ = ["JobFailed", "Result", "map_commands", "run"]

Command = str | Sequence[str | os.PathLike[str]]


def run(  # noqa: PLR0913 - the keywords are the interface
    command: Command,
    *,
    name: str = "",
    tool: str = "",
    params: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    task_id: str | None = None,
    cpus: float | None = None,
    memory: str | int | None = None,
    pids: int | None = None,
    timeout: str | float | None = None,
    interval: str | float | None = None,
    cwd: "str | os.PathLike[str] | None" = None,
    env: Mapping[str, str] | None = None,
    enforce: bool | None = None,
    monitor: bool | None = None,
    probes: str | None = None,
    cpu_list: str | None = None,
    accounting: str | None = None,
    container: "str | Mapping[str, Any] | ContainerJob | None" = None,
    inputs: "Sequence[str | os.PathLike[str]]" = (),
    outputs: "Sequence[str | os.PathLike[str]]" = (),
    check: bool = False,
    store: str | None = None,
) -> Result:
    """Runs one command to its end, measured like `joblens run`. A string is a shell line, a list is a
    command with its arguments. With `check`, anything but success raises JobFailed; without it, a job
    that fails or cannot be started is a Result like any other. Bad input raises InputError. Defaults come
    from the settings. `container` is an image, or a dict with `image`, `engine`, `volumes` and other
    `--container-…` options. `inputs` and `outputs` are files it reads and makes, or patterns: the record
    has their sizes and digests.

    Its output goes to files (`Result.stdout`), its input is empty. Works in any thread, and changes no
    signal handler of the program. An exception while it runs (KeyboardInterrupt) stops the job first.
    """
    argv, shell = command_of(command)
    request = Request(
        argv=argv,
        shell=shell,
        name=name,
        tool=tool,
        params=mapping_of("params", params),
        tags=tags_of(tags),
        external_id=task_id,
        env=mapping_of("env", env),
        cwd=_path(cwd),
        requirements=_requirements(cpus, memory, pids, timeout),
        enforce=enforce,
        monitor=monitor,
        probes=probes,
        cpu_list=cpu_list,
        container=container_of(container),
        accounting=_accounting(accounting),
        interval_s=seconds_of("interval", interval),
        inputs=texts_of("inputs", inputs),
        outputs=texts_of("outputs", outputs),
    )
    settings = _settings(store)
    (result,) = _run_sessions([prepare(request, settings)], settings, 1)
    if check and not result.ok:
        raise JobFailed(result)
    return result


def map_commands(  # noqa: PLR0913 - the keywords are the interface
    commands: Iterable[Command],
    *,
    jobs: int | None = None,
    cpus: float | None = None,
    memory: str | int | None = None,
    pids: int | None = None,
    timeout: str | float | None = None,
    tool: str = "",
    tags: Sequence[str] = (),
    cwd: "str | os.PathLike[str] | None" = None,
    env: Mapping[str, str] | None = None,
    store: str | None = None,
) -> Iterator[Result]:
    """Runs many commands, `jobs` at a time (default: one per CPU), and yields each result when its record
    is safe, in the order they end. Jobs without limits share resident launchers, which makes a start as
    cheap as a bare spawn, still with exact numbers and a record each.

    `commands` is read as jobs are started, a few ahead. Leaving the loop early, or an exception in it,
    stops the running jobs (TERM, then KILL after their grace time) and records them as cancelled.
    """
    if isinstance(commands, str):
        raise InputError(
            "commands: expected a list, not a string", hint="pass a list of commands, or use joblens.run"
        )
    width = count_of("jobs", jobs) or len(os.sched_getaffinity(0))
    requirements = _requirements(cpus, memory, pids, timeout)
    common = Request(
        tool=tool, tags=tags_of(tags), env=mapping_of("env", env), cwd=_path(cwd), requirements=requirements
    )
    check_request(replace(common, argv=("the same for all",)))
    settings = _settings(store)
    here = SubmitEnvironment.here()

    def prepared() -> Iterator[PreparedJob]:
        for command in commands:
            argv, shell = command_of(command)
            yield prepare(replace(common, argv=argv, shell=shell), settings, here)

    if requirements != Requirements():
        return _run_sessions(prepared(), settings, width)
    return _run_slots(prepared(), settings, width, common.env)


def _run_slots(
    prepared: Iterable[PreparedJob], settings: Settings, width: int, env: dict[str, str]
) -> Iterator[Result]:
    log = OwnLog(settings.logs)
    context = open_context(settings, warn=log.warn)
    try:
        pool = SlotPool(
            context,
            SlotPlan(
                width=width,
                logs_dir=logs_root(settings),
                output_max_bytes=settings.output.max_size,
                accounting=settings.limits.accounting,
            ),
        )
        context.recorder.add_poll(pool.poll_cancel_requests)
        if settings.job_metrics.enabled:
            interval_s = settings.job_metrics.default_sample_rate or DEFAULT_INTERVAL_S
            context.sampler.add("slots", interval_s, pool.take_samples)
        for record in pool.run(_slot_job(one, env, context) for one in prepared):
            log.ended(record)
            yield Result(record, settings)
    finally:
        _close(context, settings)


def _slot_job(prepared: PreparedJob, env: dict[str, str], context: AgentContext) -> SlotJob:
    context.add_secrets(prepared.secrets, prepared.job.uuid)
    return SlotJob(prepared.job, prepared.argv, env)


def _run_sessions(prepared: Iterable[PreparedJob], settings: Settings, width: int) -> Iterator[Result]:
    log = OwnLog(settings.logs)
    context = open_context(settings, warn=log.warn)
    try:
        pool = SessionPool(context, width)
        for record in pool.run(session_order(one, context, settings) for one in prepared):
            log.ended(record)
            yield Result(record, settings)
    finally:
        _close(context, settings)


def _close(context: AgentContext, settings: Settings) -> None:
    """Applies the retention and closes the context."""
    try:
        with suppress(JoblensError):  # the outcomes of the jobs are known
            context.recorder.read(lambda store: apply_retention(store, settings, context.clock.now_us()))
    finally:
        close_context(context)


def _settings(store: str | None) -> Settings:
    return load_settings(overrides={"store.url": store} if store else {}).settings


def _accounting(name: str | None) -> Accounting | None:
    if name is None:
        return None
    try:
        return Accounting(name)
    except ValueError:
        raise InputError(f"accounting='{name}'", hint=f"one of {', '.join(Accounting)}") from None


def _requirements(
    cpus: float | None, memory: str | int | None, pids: int | None, timeout: str | float | None
) -> Requirements:
    return Requirements(
        cpus=cpus,
        memory_bytes=memory_of("memory", memory),
        pids=pids,
        timeout_s=seconds_of("timeout", timeout),
    )


def _path(path: "str | os.PathLike[str] | None") -> str | None:
    return os.fspath(path) if isinstance(path, os.PathLike) else path
