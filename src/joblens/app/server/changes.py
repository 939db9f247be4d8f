"""Changes through the server: submit, cancel, rerun, resume, tag and annotate. Each needs a role and is
written to the audit log."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, json
from msgspec.structs import replace

from joblens.analysis.runs.status import run_label
from joblens.app.jobs.preparation import prepare
from joblens.app.jobs.requests import Request
from joblens.app.jobs.submission import request_cancel, submit
from joblens.app.runs.control import request_job_cancel, request_run_cancel
from joblens.app.runs.state import state_of_run
from joblens.app.server.access import Principal, audit
from joblens.app.server.jobs import get_job
from joblens.app.server.runs import find_run, find_workflow
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import StoreConnection, Warn
from joblens.model.access import IdempotentRequest, Role, Scope
from joblens.model.errors import AccessDenied, Conflict, InputError, UnknownJob
from joblens.model.history import Annotation, Tombstone
from joblens.model.jobs.job import Record, Requirements, RetryLost
from joblens.model.questions import CancelJobs, DeleteJobs, Done
from joblens.model.runs.run import Run, RunOptions
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobAnnotated
from joblens.ports.store import QueueStore, Store

if TYPE_CHECKING:
    from joblens.app.driving.checks import RunRequest

_REMEMBERED_US = 24 * 3600 * 1_000_000
_LONGEST_KEY = 200

Text = Annotated[str, Meta(max_length=10_000)]
Words = tuple[Annotated[str, Meta(max_length=100_000)], ...]
Tag = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f,]+$")]


class SubmitRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command for the background. It runs as the user of the server."""

    argv: Words = ()
    shell: Text | None = None  # in place of argv: a shell line
    name: Annotated[str, Meta(max_length=200)] = ""
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    tags: tuple[Tag, ...] = ()
    params: dict[str, Any] = {}
    env: dict[str, Text] = {}
    cwd: Text | None = None
    cpus: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    memory_bytes: Annotated[int, Meta(ge=4096, le=2**60)] | None = None
    gpus: Annotated[int, Meta(ge=0, le=1024)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    queue: Annotated[str, Meta(max_length=100)] = ""  # '': in the background on the server's machine


class SubmitJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command with all options of `joblens submit`. It runs as the user of the server."""

    request: Request
    queue: Annotated[str, Meta(max_length=100)] = ""
    label: Annotated[str, Meta(max_length=100)] = ""
    retry_lost: RetryLost | None = None


class RunBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow with the keys of a workflow file (docs/spec.md). It runs as the user of the server."""

    workflow: dict[str, Any]
    cwd: Annotated[str, Meta(min_length=1, max_length=4096)]  # on the server's machine
    output_dir: Annotated[str, Meta(min_length=1, max_length=4096)] = "output"  # below cwd, or absolute
    parameters: dict[str, Any] = {}


class RunRerun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without both, all jobs run again."""

    failed: bool = False  # jobs that did not succeed, and their dependents
    only: tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...] = ()  # names and patterns


class RerunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    env: dict[str, Text] = {}  # values that were not recorded because they may be secret


class TagChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    add: tuple[Tag, ...] = ()
    remove: tuple[Tag, ...] = ()


class NoteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Changer:
    """Changes by one caller."""

    def __init__(
        self, store: QueueStore, caller: Principal, settings: Settings, config: str | None, warn: Warn
    ) -> None:
        self._store = store
        self._caller = caller
        self._settings = settings
        self._config = config
        self._warn = warn

    def submit(self, request: SubmitRequest, key: str | None) -> tuple[Record, bool]:
        """Returns the record, and whether the job is new. The same key again returns the first job."""
        self._check_may_run()
        digest = hashlib.sha256(json.encode(request, order="deterministic")).hexdigest()
        return self.submit_whole(SubmitJob(request=_request(request), queue=request.queue), key, digest)

    def submit_whole(self, submission: SubmitJob, key: str | None, digest: str = "") -> tuple[Record, bool]:
        """The same for a request with all options of the command line."""
        self._check_may_run()
        digest = digest or hashlib.sha256(json.encode(submission, order="deterministic")).hexdigest()
        needs_workers = bool(
            submission.queue or submission.label or submission.retry_lost or self._settings.queue.broker
        )
        request = replace(submission.request, background=not needs_workers)
        record, is_new = self._submit_once(
            replace(submission, request=request), key, digest, needs_workers=needs_workers
        )
        if is_new:
            self._audit("job-submit", record.job.uuid, {"name": record.job.name, "key": key})
        return record, is_new

    def cancel(self, ident: str) -> Record:
        """Asks a job to end; one that has ended stays as it is."""
        self._caller.require(Role.OPERATOR)
        record = get_job(self._store, self._caller, ident)
        self._cancel([record])
        return self._store.find(record.job.uuid)

    def cancel_jobs(self, request: CancelJobs) -> Done:
        """All jobs are checked before the first is cancelled."""
        self._caller.require(Role.OPERATOR)
        if bool(request.run) != bool(request.indexes):
            raise InputError("run and indexes belong together", hint="indexes count jobs in the plan of run")
        records = self._jobs(request.uuids)
        if request.run:
            self._cancel_of_run(request)
        return Done(self._cancel(records) + len(request.indexes))

    def rerun(self, ident: str, changes: RerunRequest, key: str | None) -> tuple[Record, bool]:
        """Submits the command of an earlier job again. Returns as `submit`."""
        from joblens.app.runs.job_rerun import prepare_rerun

        self._check_may_run()
        record = get_job(self._store, self._caller, ident)
        digest = hashlib.sha256(json.encode((record.job.uuid, changes), order="deterministic")).hexdigest()
        again = prepare_rerun(record, self._store, self._settings, changes.env, None)
        job = record.job
        request = Request(
            argv=again.argv,
            shell=again.shell,
            name=job.name,
            tool=job.tool,
            script=job.script,
            tags=job.tags,
            params=job.params,
            env=again.env,
            cwd=again.cwd or None,
            requirements=job.requirements,
            container=job.container,
            background=True,
            rerun_of=job.uuid,
        )
        new, is_new = self._submit_once(SubmitJob(request=request), key, digest, needs_workers=False)
        if is_new:
            self._audit("job-rerun", job.uuid, {"new": new.job.uuid})
        return new, is_new

    def cancel_run(self, ident: str) -> Run:
        self._caller.require(Role.OPERATOR)
        run = find_run(self._store, self._caller, ident)
        request_run_cancel(run, self._store, self._settings, self._caller.audit_name)
        self._audit("run-cancel", run.uuid)
        return self._store.find_run(run.uuid)

    def start_run(self, body: RunBody) -> Run:
        """Starts a workflow in a process of its own. Raises SpecError with every mistake, PlanError for jobs
        that can never start."""
        from joblens.app.driving.checks import RunRequest
        from joblens.app.driving.sweep import workflow_without_file
        from joblens.app.queue.notifiers import with_broker
        from joblens.app.runs.specs import hide_secrets
        from joblens.app.workflows.loader import load_document

        self._check_may_run()
        if not os.path.isdir(body.cwd) or not os.path.isabs(body.cwd):
            raise InputError(
                f"cwd '{body.cwd[:200]}' is not an absolute path of a directory on the server's machine"
            )
        options = RunOptions(output_dir=body.output_dir, cwd=body.cwd, parameters=body.parameters)
        loaded = load_document(body.workflow, body.parameters, body.cwd)
        options = hide_secrets(loaded, with_broker(options, self._settings))
        known = workflow_without_file(self._store, loaded.plan.name)
        request = RunRequest(loaded=loaded, options=options, workflow=known or "")
        run = self._detached(lambda _store: request)
        self._audit("run-start", run.uuid, {"name": loaded.plan.name})
        return run

    def resume_run(self, ident: str) -> Run:
        """Continues a run in a process of its own. Raises InputError or RunIsDriven."""
        from joblens.app.driving.requests import refuse_finished, resume_request
        from joblens.app.runs.control import refuse_command

        self._check_may_run()
        run = find_run(self._store, self._caller, ident)
        refuse_command(run, self._store)
        refuse_finished(run, can_resume=True)

        def request(store: Store) -> "RunRequest":
            made, can_resume = resume_request(store, run, self._settings)
            refuse_finished(run, can_resume=can_resume)
            return made

        resumed = self._detached(request)
        self._audit("run-resume", run.uuid)
        return resumed

    def rerun_run(self, ident: str, body: RunRerun) -> Run:
        """Starts a new run that repeats part of an earlier one."""
        from joblens.app.driving.requests import RerunPart, rerun_request

        self._check_may_run()
        if body.failed and body.only:
            raise InputError("give failed or only, not both", hint="without both, all jobs run again")
        base = find_run(self._store, self._caller, ident)
        part = RerunPart.FAILED if body.failed else RerunPart.ONLY if body.only else RerunPart.ALL

        def request(store: Store) -> "RunRequest":
            made = rerun_request(store, base, self._settings, part, body.only)
            if made.again is not None and made.again.is_empty:
                raise InputError(f"no job of run {run_label(base)} needs to run again")
            return made

        new = self._detached(request)
        self._audit("run-rerun", base.uuid, {"new": new.uuid})
        return new

    def _detached(self, request: "Callable[[Store], RunRequest]") -> Run:
        """Validates, creates or continues a run, and returns when its own process drives it."""
        from joblens.app.driving.start import Runs
        from joblens.app.wiring.agent_context import OwnLog

        with closing(StoreConnection(self._settings, self._warn)) as connection:
            runs = Runs(
                self._settings, self._config, connection, self._warn, lambda: OwnLog(self._settings.logs)
            )
            prepared = runs.prepare(replace(request(connection.to_read()), detach=True))
            runs.detach(prepared)
        return self._store.find_run(prepared.uuid)

    def tag(self, ident: str, change: TagChange) -> Record:
        self._caller.require(Role.OPERATOR)
        uuid = get_job(self._store, self._caller, ident).job.uuid
        if self._store.change_tags([uuid], add=change.add, remove=change.remove):
            self._audit("job-tag", uuid, {"add": change.add, "remove": change.remove})
        return self._store.find(uuid)

    def annotate(self, ident: str, request: NoteRequest) -> Annotation:
        self._caller.require(Role.OPERATOR)
        uuid = get_job(self._store, self._caller, ident).job.uuid
        note = Annotation(
            uuid=new_uuid(),
            job_uuid=uuid,
            at_us=time.time_ns() // 1000,
            author=self._caller.user,
            text=request.text,
        )
        self._store.apply([JobAnnotated(note)])
        self._audit("job-annotate", uuid, {"note": note.uuid})
        return note

    def delete(self, ident: str) -> Tombstone:
        """Removes a job with everything that belongs to it. Raises Conflict for one that has not ended or
        that a run still needs. The store writes the audit entry."""
        self._caller.require(Role.ADMIN)
        record = get_job(self._store, self._caller, ident)
        deleted = self._delete([record])
        if not deleted:
            raise UnknownJob(f"job {record.number} was deleted meanwhile")
        return deleted[0]

    def delete_jobs(self, request: DeleteJobs) -> Done:
        """Deletes jobs and workflows, or nothing if one of them must stay."""
        from joblens.app.runs.deletion import refuse_resumable

        self._caller.require(Role.ADMIN)
        workflows = [find_workflow(self._store, self._caller, ident) for ident in request.workflows]
        for workflow in workflows:
            refuse_resumable(self._store, workflow, None, self._settings)
        gone = self._delete(self._jobs(request.uuids))
        removed = [each for each in workflows if self._store.delete_workflow(each.uuid)]
        for workflow in removed:
            self._audit("workflow-delete", workflow.uuid, {"name": workflow.name})
        return Done(len(gone) + len(removed))

    # ---- jobs that were found

    def _jobs(self, uuids: tuple[str, ...]) -> list[Record]:
        return [get_job(self._store, self._caller, uuid) for uuid in dict.fromkeys(uuids)]

    def _cancel(self, records: Sequence[Record]) -> int:
        """Returns how many had not ended."""
        from joblens.app.queue.submission import cancel_queued

        unfinished = [each for each in records if not each.status.is_final]
        queued = [each for each in unfinished if each.job.queue]
        for by in {each.job.user or current_user() for each in queued}:
            own = [each for each in queued if (each.job.user or current_user()) == by]
            cancel_queued(own, self._store, self._settings, self._config, by=by)
        for record in unfinished:
            if not record.job.queue:
                request_cancel(record, self._store, self._settings, self._caller.audit_name)
            self._audit("job-cancel", record.job.uuid)
        return len(unfinished)

    def _cancel_of_run(self, request: CancelJobs) -> None:
        run = find_run(self._store, self._caller, request.run)
        if max(request.indexes) >= len(state_of_run(self._store, run).jobs):
            raise InputError(f"run {request.run} has no job with that index", hint="indexes count from 0")
        for index in request.indexes:
            request_job_cancel(run, index, self._store, self._settings, self._caller.audit_name)
            self._audit("job-cancel", run.uuid, {"index": index})

    def _delete(self, records: list[Record]) -> list[Tombstone]:
        from joblens.app.runs.deletion import Mirrors, delete, select

        selection = select(self._store, records, None, self._settings)
        if selection.obstacles:
            first = selection.obstacles[0]
            raise Conflict(f"job {first.record.number} {first.reason}", hint=first.hint)
        mirrors = Mirrors.of(self._settings)
        now_us = time.time_ns() // 1000
        return delete(
            self._store, selection.jobs, mirrors, by=self._caller.audit_name, at_us=now_us, warn=self._warn
        )

    # ---- submission

    def _check_may_run(self) -> None:
        """Raises AccessDenied. Jobs run as the server's user, and the caller must be able to see them."""
        self._caller.require(Role.OPERATOR)
        if self._caller.scope is Scope.OWN and self._caller.user != current_user():
            raise AccessDenied(
                f"jobs run as {current_user()} here; "
                f"{self._caller.name} may only see jobs of {self._caller.user}",
                hint="ask for a token with the scope 'all', or for a server of your own",
            )

    def _submit_once(
        self, submission: SubmitJob, key: str | None, digest: str, *, needs_workers: bool
    ) -> tuple[Record, bool]:
        """Decides on the job's UUID before it exists: however often a request is sent, and wherever the
        server was killed meanwhile, there is one job. Without workers it is the supervisor's."""
        request = submission.request
        prepared = prepare(replace(request, uuid=new_uuid()), self._settings)  # refused before a key is used
        uuid = prepared.job.uuid
        if key is not None:
            _check_key(key)
            first = self._store.remember_request(self._idempotent(key, digest, uuid))
            if first.digest != digest:
                raise Conflict(
                    "this Idempotency-Key was used for another request",
                    hint="use a new key for a new request",
                )
            uuid = first.job_uuid
            if self._store.states([uuid]):
                return self._store.find(uuid), False
            if self._store.tombstones([uuid]):
                raise Conflict(
                    f"job {uuid} of this Idempotency-Key was deleted", hint="use a new key to run it again"
                )
        if needs_workers:
            from joblens.app.queue.submission import QueueRequest, enqueue

            queued = QueueRequest(
                request=replace(request, uuid=uuid),
                queue=submission.queue,
                label=submission.label,
                retry_lost=submission.retry_lost,
            )
            (record,) = enqueue([queued], self._settings, self._config, self._warn)
            return record, True
        prepared = prepare(replace(request, uuid=uuid), self._settings)
        return submit(prepared, self._settings, self._config, self._warn), True

    def _idempotent(self, key: str, digest: str, uuid: str) -> IdempotentRequest:
        now_us = time.time_ns() // 1000
        return IdempotentRequest(
            user=self._caller.user,
            key=key,
            digest=digest,
            job_uuid=uuid,
            at_us=now_us,
            expires_at_us=now_us + _REMEMBERED_US,
        )

    def _audit(self, action: str, subject: str, details: dict[str, Any] | None = None) -> None:
        audit(self._store, self._caller, action, subject, details)


def _check_key(key: str) -> None:
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        raise InputError(
            f"the Idempotency-Key must be printable and at most {_LONGEST_KEY} characters long",
            hint="use a UUID",
        )


def _request(request: SubmitRequest) -> Request:
    return Request(
        argv=request.argv,
        shell=request.shell,
        name=request.name,
        external_id=request.id,
        tags=request.tags,
        params=request.params,
        env=request.env,
        cwd=request.cwd,
        requirements=Requirements(
            cpus=request.cpus,
            memory_bytes=request.memory_bytes,
            gpus=request.gpus,
            timeout_s=request.timeout_s,
        ),
    )
