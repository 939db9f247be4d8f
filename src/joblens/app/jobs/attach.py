"""Attach: measures a running process or container until it ends."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from joblens.agent.attach.attachment import Attachment, Target, find_target
from joblens.agent.session.context import AgentContext
from joblens.agent.terminal.streams import LiveDisplay
from joblens.app.jobs.api import Result
from joblens.app.jobs.epilog import after_job
from joblens.app.jobs.preparation import (
    DEFAULT_INTERVAL_S,
    SubmitEnvironment,
    default_name,
    probes_of,
)
from joblens.app.jobs.requests import Request, check_request, seconds_of, tags_of
from joblens.app.wiring.agent_context import OwnLog, close_context, open_context
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import Job, Record, Requirements
from joblens.model.jobs.sample import Sample
from joblens.model.redaction.secrets import redact_argv, redact_text
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.probes.provenance.program_files import as_text

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIVE_LINE_SAMPLES = 60

MakeDisplay = Callable[[str], LiveDisplay]  # by the name of the job


def attach(
    target: str | int,
    *,
    name: str = "",
    tags: Sequence[str] = (),
    interval: str | float | None = None,
    probes: str | None = None,
    timeout: str | float | None = None,
    container_socket: str = "",
    store: str | None = None,
) -> Result:
    """Measures a running process (by its id), container or control group until it ends or `timeout` has
    passed. It is never stopped or changed. Bad input raises InputError. An exception meanwhile
    (KeyboardInterrupt) ends the measurement, which is recorded."""
    settings = load_settings(overrides={"store.url": store} if store else {}).settings
    request = Request(
        argv=("attach",),
        name=name,
        tags=tags_of(tags),
        interval_s=seconds_of("interval", interval),
        probes=probes,
        requirements=Requirements(timeout_s=seconds_of("timeout", timeout)),
    )
    found = find_target(str(target), socket=container_socket)
    return Result(_AttachedMeasurement(found, request, settings).until_end(), settings)


def attach_in_foreground(
    text: str,
    request: Request,
    settings: Settings,
    *,
    engine: str,
    socket: str,
    make_display: MakeDisplay | None,
) -> Record:
    """Handles the process's signals meanwhile: the first one ends the measurement."""
    measuring = _AttachedMeasurement(find_target(text, engine, socket), request, settings, make_display)
    before: dict[int, Any] = {}
    for ending in _ENDING:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            before[ending] = signal.signal(ending, measuring.stop_soon)
    wakeup_before = signal.set_wakeup_fd(measuring.context.loop.wake_fd, warn_on_full_buffer=False)
    try:
        return measuring.until_end()
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)


class _AttachedMeasurement:
    def __init__(
        self, target: Target, request: Request, settings: Settings, make_display: MakeDisplay | None = None
    ) -> None:
        check_request(request)
        self._job = _job_of(target, request, settings)
        self._target = target
        self._measure_s = request.requirements.timeout_s
        self._is_to_stop = False
        self._settings = settings
        self._live = make_display(self._job.name) if make_display is not None else None
        self._recent: deque[Sample] = deque(maxlen=_LIVE_LINE_SAMPLES)
        self._log = OwnLog(settings.logs)
        self._attachment: Attachment | None = None
        self.context: AgentContext = open_context(settings, warn=self._log.warn)

    def stop_soon(self, _number: int, _frame: FrameType | None) -> None:
        """A signal handler."""
        self._is_to_stop = True
        self.context.loop.call(self._stop)

    def _stop(self) -> None:
        if self._attachment is not None:
            self._attachment.stop()

    def until_end(self) -> Record:
        context = self.context
        try:
            attachment = Attachment(self._job, self._target, context, self._sampled, self._measure_s)
            self._attachment = attachment
            try:
                attachment.start()
                self._log.started(self._job)
                if self._is_to_stop:
                    attachment.stop()
                context.loop.run_until(lambda: attachment.is_over)
            except KeyboardInterrupt:
                attachment.stop()
                raise
            finally:
                if self._live is not None:
                    self._live.erase()
                attachment.close()
            record = attachment.record
            self._log.ended(record)
            context.recorder.read(
                lambda store: after_job(record, store, self._settings, self._log.warn, None)
            )
            return record
        finally:
            close_context(context)

    def _sampled(self, sample: Sample) -> None:
        """Called on the sampler's thread."""
        if self._live is not None:
            self._recent.append(sample)
            self.context.loop.call(self._draw)

    def _draw(self) -> None:
        attachment = self._attachment
        if self._live is None or attachment is None or attachment.is_over:
            return
        self._live.draw(list(self._recent))


def _job_of(target: Target, request: Request, settings: Settings) -> Job:
    here = SubmitEnvironment.here()
    argv = redact_argv(tuple(map(as_text, target.argv)))
    interval_s = request.interval_s or settings.job_metrics.default_sample_rate or DEFAULT_INTERVAL_S
    return Job(
        uuid=new_uuid(),
        argv=argv,
        created_at_us=time.time_ns() // 1000,
        name=redact_text(as_text(request.name)) or (target.name if target.groups else default_name(argv)),
        tool=os.path.basename(argv[0]) if not target.groups or target.container else "",
        tags=tuple(redact_text(as_text(tag)) for tag in request.tags),
        cwd=as_text(target.cwd),
        enforce=False,
        interval_s=interval_s,
        probes=probes_of(request.probes, settings),
        user=here.user,
        created_by=here.owner,
        attached=target.description,
    )
