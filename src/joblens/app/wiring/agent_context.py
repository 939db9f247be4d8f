"""Agent context of a process that owns jobs: sampler, recorder, accounting, sinks, history lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from joblens import __version__
from joblens.agent.cgroups.placement import owner_mark
from joblens.agent.measuring.accounting import Accountant
from joblens.agent.provenance.collector import ProvenanceCollector
from joblens.agent.runtime.loop import Loop, Sampler
from joblens.agent.runtime.ownership import exclusive_lock, this_process
from joblens.agent.runtime.recorder import (
    PendingEnds,
    Recorder,
    WriteFilter,
    forget_ends,
    pending_ends,
)
from joblens.agent.session.context import AgentContext
from joblens.app.wiring.drivers import (
    SystemClock,
    history_file,
    is_own_store,
    open_event_sinks,
    open_sinks,
    open_store,
    spool_dir,
    store_name,
)
from joblens.files.private import make_private_folder, user_name
from joblens.model.errors import JoblensError, LaunchError, UnknownJob
from joblens.probes.host.machine_load import read_host

if TYPE_CHECKING:
    import logging

    from joblens.agent.nodes.jobs import MultiNodeJobs
    from joblens.agent.recovery.orphans import Recovery
    from joblens.app.wiring.drivers import (
        Warn,
    )
    from joblens.model.jobs.job import Job, Record
    from joblens.model.settings import LogSettings, Settings
    from joblens.ports.store import Store
    from joblens.probes.host.machine_load import HostFacts


_TIMEOUT_S = 5.0


def write_missing_lines(store: Store, settings: Settings, spool: str, host: HostFacts, warn: Warn) -> None:
    """Cheap if there is nothing: one directory listing. Lines that cannot be written now wait for the
    next process."""
    if not any(pending_ends(spool, host).values()):
        return
    with exclusive_lock(spool, "history", _TIMEOUT_S) as is_alone, contextlib.suppress(JoblensError):
        if not is_alone:
            return
        for path, uuids in pending_ends(spool, host).items():
            records = [find_or_none(store, uuid) for uuid in uuids]
            ended = [one for one in records if one is not None and one.status.is_final]
            if settings.sinks.history.enabled:
                _add(ended, settings, warn)
            for sink in open_event_sinks(settings, warn) if ended else ():
                sink.jobs_ended(ended)
                sink.close()
            forget_ends(path, host)


def find_or_none(store: Store, uuid: str) -> Record | None:
    """Returns None if it was deleted, or never reached the store."""
    try:
        return store.find(uuid)
    except UnknownJob:
        return None


def _add(records: list[Record], settings: Settings, warn: Warn) -> None:
    from joblens.stores.sinks.history_jsonl import HistoryJsonl

    limits = settings.sinks.history
    sink = HistoryJsonl(history_file(settings), limits.max_size, limits.backup_count, warn)
    sink.add_missing(records)
    sink.close()


_LEAST_DESCRIPTORS = 64


def show(text: str, level: str) -> None:
    """A message that cannot be shown never stops a job."""
    line = f"joblens: {level}: {_clean(text)}"
    with suppress(OSError, ValueError, AttributeError):  # None, where a program closed it
        # On a terminal it replaces a live line, and the terminal may be in raw mode.
        sys.stderr.write(f"\r{line}\x1b[K\r\n" if sys.stderr.isatty() else f"{line}\n")


def _clean(text: str) -> str:
    from joblens.views.text.style import clean_text

    return clean_text(text)


class OwnLog:
    """joblens' messages about its own work. Without a log file they go to standard error, from the
    configured level on; with one, they go there, and warnings are shown too. Raises ConfigError for a
    file that is not writable."""

    def __init__(self, logs: LogSettings, show: Callable[[str, str], None] = show) -> None:
        self._show = show
        self._level = logs.level
        self._logger: logging.Logger | None = None
        if logs.file is not None:
            from joblens.app.wiring.logging_setup import set_up_logging

            self._logger = set_up_logging(logs)

    def info(self, text: str) -> None:
        if self._logger is not None:
            self._logger.info("%s", _clean(text))
        elif self._level in ("DEBUG", "INFO"):
            self._show(text, "info")

    def warn(self, text: str) -> None:
        if self._logger is not None:
            self._logger.warning("%s", _clean(text))
        if self._logger is not None or self._level != "ERROR":
            self._show(text, "warning")

    def started(self, job: Job) -> None:
        self.info(f"job {job.uuid} ({job.name}): started")

    def ended(self, record: Record) -> None:
        outcome = record.outcome
        if outcome is not None:
            code = "" if outcome.exit_code is None else f", exit code {outcome.exit_code}"
            took = f"{outcome.duration_s:.3f}s"
            self.info(f"job {record.job.uuid} ({record.job.name}): {outcome.status}{code}, {took}")


def current_user() -> str:
    return user_name(os.getuid())


def _check_descriptors() -> None:
    """Checked before anything is started."""
    allowed = os.sysconf("SC_OPEN_MAX")
    if 0 <= allowed < _LEAST_DESCRIPTORS:
        raise LaunchError(
            f"{allowed} open files are allowed, but joblens needs {_LEAST_DESCRIPTORS} to run a job",
            hint="raise the limit on open files: ulimit -n 1024",
        )


def open_context(
    settings: Settings,
    job_rlimits: tuple[tuple[int, int, int], ...] = (),
    *,
    warn: Warn | None = None,
    around: Callable[[Store], Store] = lambda store: store,
    write_filter: WriteFilter | None = None,
    store: Store | None = None,
    host: HostFacts | None = None,
) -> AgentContext:
    """`around` wraps the store for all writers. `write_filter`: of the recorder. `store`: a connection
    that the caller closes; None: the context opens and closes its own."""
    _check_descriptors()
    warn = warn or OwnLog(settings.logs).warn
    clock = SystemClock()
    host = host or read_host()
    spool = spool_dir(store_name(settings))
    try:
        make_private_folder(spool)
    except OSError as error:
        # Needed only for a job whose joblens is killed.
        warn(f"launchers cannot write outcomes: {spool}: {error.strerror}")
    owner = this_process(host)
    opened = store or open_store(settings, warn)
    wrapped = around(opened)
    try:
        write_missing_lines(wrapped, settings, spool, host, warn)
        sinks, pending = open_sinks(settings, warn), PendingEnds(spool, owner)
    except BaseException:
        if store is None:
            opened.close()
        raise
    recorder = Recorder(wrapped, sinks, warn, pending, write_filter, closes_store=store is None)
    return AgentContext(
        recorder=recorder,
        sampler=Sampler(clock, warn),
        accountant=Accountant(clock, settings.limits.cgroup_parent, warn, owner_mark(owner, spool)),
        clock=clock,
        loop=Loop(),
        owner=owner,
        host=host,
        spool_dir=spool,
        job_rlimits=job_rlimits,
        nodes=_nodes_here(settings),
        provenance=ProvenanceCollector(
            recorder,
            host,
            __version__,
            job_rlimits,
            largest_hashed=settings.provenance.max_hash_size,
            is_on=settings.provenance.enabled,
        ),
    )


def _nodes_here(settings: Settings) -> MultiNodeJobs | None:
    if "SLURM_JOB_ID" not in os.environ:
        return None
    from joblens.app.wiring.node_agents import nodes_here

    return nodes_here(settings.limits.cgroup_parent)


def open_recovery(context: AgentContext, settings: Settings) -> Recovery:
    from joblens.agent.recovery.orphans import Recovery

    return Recovery(
        context.spool_dir,
        context.accountant,
        context.clock,
        context.host,
        user=current_user(),
        output_max_bytes=settings.output.max_size,
        trusts_records=is_own_store(settings),
    )


def close_context(context: AgentContext, *, sweeps_all: bool = False) -> None:
    """Removes groups of killed processes of this store. `sweeps_all`: everything else of them, too."""
    context.sampler.close()
    context.instruments.close()
    with suppress(JoblensError, OSError):
        _sweep(context, sweeps_all=sweeps_all)
    if context.provenance is not None:
        context.provenance.close()
    context.recorder.close()
    context.accountant.close()
    context.loop.close()


def _sweep(context: AgentContext, *, sweeps_all: bool) -> None:
    accountant = context.accountant
    if sweeps_all:
        from joblens.agent.recovery.orphans import sweep

        now_us = context.clock.now_us()
        context.recorder.read(
            lambda store: sweep(context.spool_dir, store, now_us, context.host, accountant.parent)
        )
    elif accountant.parents:
        from joblens.agent.cgroups.groups import sweep_own_groups

        context.recorder.read(lambda store: sweep_own_groups(context.spool_dir, store, accountant.parents))
