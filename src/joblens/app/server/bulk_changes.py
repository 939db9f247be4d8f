"""Changes of many jobs by one request, for commands that work on a server: cancel and delete."""

import time

from joblens.app.jobs.deletion import Mirrors, delete, refuse_resumable, select
from joblens.app.jobs.submission import ask_to_cancel
from joblens.app.queue.submission import cancel_all_queued
from joblens.app.runs.control import ask_job_to_end
from joblens.app.runs.state import state_of_run
from joblens.app.server.access import Principal, audit
from joblens.app.server.questions import Answering
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn
from joblens.model.access import Role
from joblens.model.errors import Conflict, InputError
from joblens.model.jobs.job import Record
from joblens.model.questions import CancelJobs, DeleteJobs, Done, OneJob, OneRun
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore


class BulkChanger:
    """Changes by one caller. All jobs are checked before the first is changed."""

    def __init__(
        self, store: QueueStore, who: Principal, settings: Settings, config: str | None, warn: Warn
    ) -> None:
        self._store = store
        self._who = who
        self._settings = settings
        self._config = config
        self._warn = warn
        self._reading = Answering(store, who)

    def cancel(self, asked: CancelJobs) -> Done:
        self._who.require(Role.OPERATOR)
        if bool(asked.run) != bool(asked.indexes):
            raise InputError("run and indexes belong together", hint="indexes count jobs in the plan of run")
        unfinished = [each for each in self._jobs(asked.uuids) if not each.status.is_final]
        if asked.run:
            self._cancel_of_run(asked)
        queued = [each for each in unfinished if each.job.queue]
        for by in {each.job.user or current_user() for each in queued}:
            own = [each for each in queued if (each.job.user or current_user()) == by]
            cancel_all_queued(own, self._store, self._settings, self._config, by=by)
        for record in unfinished:
            if not record.job.queue:
                ask_to_cancel(record, self._store, self._settings, self._who.who)
            audit(self._store, self._who, "job-cancel", record.job.uuid)
        return Done(len(unfinished) + len(asked.indexes))

    def delete(self, asked: DeleteJobs) -> Done:
        """Raises Conflict for a job that has not ended or that a run still needs; nothing is deleted then."""
        self._who.require(Role.ADMIN)
        workflows = [self._reading.find_workflow(OneRun(ident)) for ident in asked.workflows]
        for workflow in workflows:
            refuse_resumable(self._store, workflow, None)
        selection = select(self._store, self._jobs(asked.uuids), None)
        if selection.obstacles:
            first = selection.obstacles[0]
            raise Conflict(f"job {first.record.number} {first.reason}", hint=first.hint)
        mirrors = Mirrors.of(self._settings)
        now_us = time.time_ns() // 1000
        gone = delete(self._store, selection.jobs, mirrors, by=self._who.who, at_us=now_us, warn=self._warn)
        removed = [each for each in workflows if self._store.delete_workflow(each.uuid)]
        for workflow in removed:
            audit(self._store, self._who, "workflow-delete", workflow.uuid, {"name": workflow.name})
        return Done(len(gone) + len(removed))

    def _cancel_of_run(self, asked: CancelJobs) -> None:
        run = self._reading.find_run(OneRun(asked.run))
        if max(asked.indexes) >= len(state_of_run(self._store, run).jobs):
            raise InputError(f"run {asked.run} has no job with that index", hint="indexes count from 0")
        for index in asked.indexes:
            ask_job_to_end(run, index, self._store, self._settings, self._who.who)
            audit(self._store, self._who, "job-cancel", run.uuid, {"index": index})

    def _jobs(self, uuids: tuple[str, ...]) -> list[Record]:
        return [self._reading.find(OneJob(uuid)) for uuid in dict.fromkeys(uuids)]
