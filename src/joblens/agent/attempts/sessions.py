"""The attempts of a run that are held to limits or to a time-out, each in groups of its own."""

import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.attempts.reports import RunReports
from joblens.agent.cgroups.marked import JOB_ID_VARIABLE
from joblens.agent.containers.order import client_variables
from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.measuring.outcome import not_started
from joblens.agent.session.context import AgentContext, PreparedLauncher, watch_name
from joblens.agent.session.session import JobSession
from joblens.agent.session.standby import Standby
from joblens.agent.terminal.output import OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Accounting, Job, Record, Status
from joblens.model.writes import JobEnded, JobQueued

_MOST_STANDBY, _MORE_STANDBY = 12, 2


class RunSessions:
    def __init__(
        self,
        context: AgentContext,
        environ: Mapping[str, str],
        reports: RunReports,
        *,
        accounting: Accounting,
        output_max_bytes: int,
        end_signal: int,
    ) -> None:
        self._context = context
        self._environ = environ
        self._reports = reports
        self._output_max_bytes = output_max_bytes
        self._end_signal = end_signal
        self._sessions: dict[str, JobSession] = {}
        self._accounting = accounting
        self._standby = Standby(context, accounting)
        self._to_come = 0
        self._spare = 1  # launchers beyond one for each job that runs
        self._has_begun = False
        self._unrecorded = 0  # jobs that could not be started, and are not in the store yet

    def expect(self, count: int) -> None:
        """So many more will be started, as far as is known: launchers stand by for the next few."""
        self._to_come = count

    def start(self, attempt: PreparedAttempt) -> None:
        job = attempt.job
        try:
            output = OutputFiles(attempt.folder, self._output_max_bytes, attempt.streams)
        except OSError as error:
            self._cannot_start(attempt, LaunchError(f"its output files cannot be made: {error}"))
            return
        place = self._take_place(job)
        session = JobSession(
            job,
            LaunchPlan(
                argv=attempt.argv,
                env={**self._environ, **_variables(attempt), JOB_ID_VARIABLE: job.uuid},
                cwd=job.cwd,
                stdio=("/dev/null", *_streams(attempt.streams, output)),
            ),
            self._context,
            output=output,
            on_outcome=self._has_outcome,
            on_end=partial(self._ended, attempt),
            place=place,
        )
        self._sessions[job.uuid] = session
        self._to_come -= 1
        session.start()
        if session.error is not None:
            return  # both callbacks say so
        assert session.record.attempt is not None
        self._reports.began(job.uuid, session.record.attempt.started_at_us)
        self._standby.want(min(_MOST_STANDBY, self._to_come, len(self._sessions) + self._spare))

    def refuse(self, attempt: PreparedAttempt) -> None:
        """Records a job that cannot be started, and why."""
        self._cannot_start(attempt, LaunchError(attempt.refusal))

    def _take_place(self, job: Job) -> PreparedLauncher | None:
        if job.container is not None or job.accounting is not self._accounting:
            return None  # what stands by is not for it
        place = self._standby.take()
        if place is None and self._has_begun:
            self._spare += _MORE_STANDBY  # jobs come faster than launchers
        self._has_begun = True
        return place

    def _cannot_start(self, attempt: PreparedAttempt, error: JoblensError) -> None:
        job = attempt.job
        outcome = not_started(job, error, self._context.clock.now_us())
        record = Record(status=outcome.status, job=job, outcome=outcome)
        recorder, loop = self._context.recorder, self._context.loop

        def recorded() -> None:
            self._unrecorded -= 1
            self._reports.recorded(record)

        self._unrecorded += 1
        recorder.put([JobQueued(job), JobEnded(job.uuid, outcome)], then=partial(loop.call, recorded))
        self._reports.ended(job.uuid, outcome)

    def holds(self, uuid: str) -> bool:
        return uuid in self._sessions

    def end(self, uuid: str, *, at_once: bool) -> None:
        session = self._sessions.get(uuid)
        if session is not None:
            session.ask_stop(EndCause.CANCELLED, signal.SIGKILL if at_once else self._end_signal)

    def _has_outcome(self, session: JobSession) -> None:
        assert session.record.outcome is not None
        self._reports.ended(session.job.uuid, session.record.outcome)

    def _ended(self, attempt: PreparedAttempt, session: JobSession) -> None:
        self._sessions.pop(session.job.uuid, None)
        if "d" in attempt.streams and session.record.status is Status.SUCCESS:
            shutil.rmtree(attempt.folder, ignore_errors=True)
        self._reports.recorded(session.record)

    @property
    def is_idle(self) -> bool:
        return not self._sessions and not self._unrecorded

    def close(self) -> None:
        """What still runs is ended; its launcher leaves the outcome for whoever comes next."""
        for session in list(self._sessions.values()):
            with suppress(Exception):
                session.kill_now()
        self._standby.close()

    def take_sample(self, name: str) -> None:
        """On the sampler's thread."""
        uuid = name.removeprefix(watch_name(""))
        session = self._sessions.get(uuid)
        if session is None:
            return
        if name == uuid:
            session.take_sample()
        else:
            session.watch_limits()


def _variables(attempt: PreparedAttempt) -> dict[str, str]:
    if attempt.job.container is None:
        return attempt.env
    return client_variables({**attempt.env, JOB_ID_VARIABLE: attempt.job.uuid})


def _streams(streams: str, output: OutputFiles) -> tuple[str, str]:
    out = "/dev/null" if "o" in streams else output.stdout.path
    if "c" in streams:
        return out, out
    return out, "/dev/null" if "e" in streams else output.stderr.path
