"""Spawned jobs that a running job adds to its run: checked like those of a file, recorded in one event.

The n-th batch of a run is an event whose UUID follows from the run and n. Two jobs that add a batch at
once write the same event: the store accepts the first, and the other retries with the next n.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.runs.facts import PrivateBatch, whole_batch
from joblens.app.runs.control import note_facts, wake_driver
from joblens.app.runs.specs import stored_secrets
from joblens.app.runs.user_data import RUN_VARIABLE, is_driven_elsewhere
from joblens.app.wiring.drivers import open_store_directly, spool_dir, store_name
from joblens.app.wiring.machine import check_fit
from joblens.app.wiring.settings import load_settings
from joblens.app.workflows.loader import loaded_run
from joblens.engine.schedule.capacity import RunCapacity
from joblens.files.atomic import write_durably
from joblens.model.errors import BatchRefused, InputError, StoreError
from joblens.model.redaction.secrets import REDACTED, SecretValues, redact_params, secret_values
from joblens.model.runs.plan import Plan, PlannedJob, growing
from joblens.model.runs.run import JobsSpawned, Run, RunEnded, RunEvent, RunStarted, RunStatus
from joblens.model.runs.workflow_spec import JobSpec
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid, uuid_from
from joblens.model.values.json_text import decode_json
from joblens.model.writes import RunNoted
from joblens.plan.workflows.graph import jobs_elsewhere, refuse_elsewhere
from joblens.plan.workflows.problems import Path, nearest_name
from joblens.plan.workflows.spawning import (
    LINEAGE_VARIABLES,
    MOST_JOBS,
    MOST_STATE_BYTES,
    BatchReading,
    PlanExtender,
    most_iterations,
)
from joblens.ports.store import Store
from joblens.spec.workflows.file import read_spawn
from joblens.spec.workflows.redaction import redact_document, secrets_in

_MOST_TRIES = 100  # each is lost to another batch of the same run
_LONGEST_LINEAGE = 200
_OVER = (RunStatus.COMPLETED, RunStatus.FAILED)
_NAME_VARIABLE = "JOBLENS_JOB_NAME"
_ATTEMPT_VARIABLE = "JOBLENS_ATTEMPT"


class Spawned(Struct, frozen=True, kw_only=True):
    """Result of a batch. `created` and `existing`: names of jobs; existing ones with the same content are
    unchanged. `spawned_job_ids`: numbers of all of them (TORC_JOB_ID)."""

    lineage: str
    iteration: int
    created: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    spawned_job_ids: tuple[int, ...] = ()
    state: Any = None  # stored state of the lineage


class LineageState(Struct, frozen=True, kw_only=True):
    lineage: str
    iteration: int  # number of batches it has added
    state: Any = None
    is_final: bool = False  # its last call added no jobs


class Caller(Struct, frozen=True):
    """The calling job, from its environment."""

    run_uuid: str
    name: str
    attempt: int
    job_uuid: str
    lineage: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Caller":
        run, name = environ.get(RUN_VARIABLE), environ.get(_NAME_VARIABLE)
        if not run or not name:
            raise InputError(
                "only a job of a running workflow can add jobs to it",
                hint=f"call it in a job of a workflow; joblens sets {RUN_VARIABLE} and {_NAME_VARIABLE}",
            )
        attempt = environ.get(_ATTEMPT_VARIABLE, "1")
        lineage = next((environ[name] for name in LINEAGE_VARIABLES if environ.get(name)), name)
        number = int(attempt) if attempt.isascii() and attempt.isdigit() else 1
        return cls(run, name, number, environ.get(JOB_ID_VARIABLE, ""), lineage)


def spawn_in_run(
    store: Store,
    settings: Settings,
    caller: Caller,
    jobs: Sequence[JobSpec],
    *,
    lineage: str | None = None,
    state: Any = None,
) -> Spawned:
    """Adds jobs to the run of the calling job, blocked until that job has succeeded. Nothing is written
    if anything is wrong. Without jobs: stores the final state of the lineage."""
    lineage = _checked_lineage(caller.lineage if lineage is None else lineage)
    _check_size(jobs)
    # As they come back from the store, to compare them with existing ones.
    batch = msgspec.json.decode(msgspec.json.encode(jobs), type=tuple[JobSpec, ...])
    state = _checked_state(state)
    base: Plan | None = None
    for _ in range(_MOST_TRIES):
        run = store.find_run(caller.run_uuid)
        base = loaded_run(run).plan if base is None else base
        attempt = _Attempt(store, settings, caller, run, base)
        answer = attempt.spawn(batch, lineage, state)
        if answer is not None:
            return answer
    raise StoreError("other jobs of the run kept adding jobs at the same moment; try again")


def lineage_state(run: Run, lineage: str, settings: Settings) -> LineageState:
    """Returns the state of a lineage of a run."""
    calls = [batch for batch in run.spawned if batch.lineage == lineage]
    if not calls:
        return LineageState(lineage=lineage, iteration=0)
    last = calls[-1]
    whole = whole_batch(last, spool_dir(store_name(settings))) or last
    return LineageState(lineage=lineage, iteration=last.iteration, state=whole.state, is_final=not last.jobs)


def all_lineages(run: Run, settings: Settings) -> list[LineageState]:
    names = dict.fromkeys(batch.lineage for batch in run.spawned)
    return [lineage_state(run, name, settings) for name in names]


def check_lineage(run: Run, lineage: str) -> None:
    """Raises InputError for one that has added nothing."""
    known = list(dict.fromkeys(batch.lineage for batch in run.spawned))
    if lineage not in known:
        near = nearest_name(lineage, known)
        listed = f"there are {', '.join(known[:10])}" if known else "no job has added any"
        hint = f"did you mean '{near}'? {listed}" if near else listed
        raise InputError(f"the run has no lineage '{lineage}'", hint=hint)


def _checked_lineage(lineage: str) -> str:
    if not lineage.strip() or not lineage.isprintable() or len(lineage) > _LONGEST_LINEAGE:
        raise InputError(
            "lineage: must be a name of printable characters", hint=f"at most {_LONGEST_LINEAGE} of them"
        )
    return lineage


def _check_size(jobs: Sequence[JobSpec]) -> None:
    if len(jobs) > MOST_JOBS:
        raise InputError(
            f"the batch has {len(jobs):,} jobs; at most {MOST_JOBS:,} can be added at once",
            hint="call spawn-jobs several times; each call counts as an iteration",
        )


def _checked_state(state: Any) -> Any:
    """Returns it as it comes back from the store: plain JSON values."""
    try:
        text = msgspec.json.encode(state)
        plain = decode_json(text)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(f"state: cannot be written as JSON ({error})") from error
    if len(text) > MOST_STATE_BYTES:
        raise InputError(
            f"state: {len(text):,} bytes are too many; at most {MOST_STATE_BYTES:,}",
            hint="write large data to a file, and its path into the state",
        )
    return plain


class _Attempt:
    """One attempt to add a batch to the present run."""

    def __init__(self, store: Store, settings: Settings, caller: Caller, run: Run, base: Plan) -> None:
        """`base`: the plan of its file."""
        self._store = store
        self._settings = settings
        self._caller = caller
        self._run = run
        self._plan = growing(base)
        self._extender = PlanExtender(self._plan)
        for batch in run.spawned:
            self._extender.add(batch)
        self._orchestrator = self._index_of_caller()

    def _index_of_caller(self) -> int:
        index = self._extender.index_of(self._caller.name)
        if index is None:
            raise InputError(f"the run has no job '{self._caller.name}', the calling job")
        if self._run.status in _OVER:
            raise InputError("the run of this job has ended; no jobs can be added")
        return index

    def spawn(self, jobs: tuple[JobSpec, ...], lineage: str, state: Any) -> Spawned | None:
        """None: another batch came first; try again with the new run."""
        secrets = self._secrets(jobs)
        shown_jobs, shown_state = (
            _redacted(jobs, secrets),
            secrets.hide(redact_params({"state": state})["state"]),
        )
        conflicts = self._conflicts(jobs, shown_jobs)
        if jobs and conflicts is None:
            return self._answer(lineage, existing=tuple(job.name for job in jobs))
        iteration = sum(1 for batch in self._run.spawned if batch.lineage == lineage and batch.jobs)
        if jobs:
            iteration += 1
            self._check(jobs, shown_jobs, lineage, iteration, conflicts or {})
        elif self._is_stored_already(lineage, shown_state):
            return self._answer(lineage)
        batch = JobsSpawned(
            orchestrator=self._orchestrator,
            attempt=self._caller.attempt,
            lineage=lineage,
            iteration=iteration,
            first=len(self._plan.jobs),
            jobs=jobs,
            state=state,
            token=new_uuid(),
            job_uuid=self._caller.job_uuid,
        )
        if (shown_jobs, shown_state) != (jobs, state) and not is_driven_elsewhere(
            self._store, self._run, self._settings
        ):
            batch = self._with_private_file(replace(batch, jobs=shown_jobs, state=shown_state), jobs, state)
        if not self._write(batch):
            return None
        return self._answer(lineage, created=tuple(job.name for job in jobs))

    def _write(self, batch: JobsSpawned) -> bool:
        number = len(self._run.spawned)
        event = RunEvent(
            uuid_from(self._run.uuid, "spawned", str(number)), self._run.uuid, time.time_ns() // 1000, batch
        )
        self._store.apply([RunNoted(event)])
        self._run = self._store.find_run(self._run.uuid)
        is_ours = self._run.spawned[number].token == batch.token
        if is_ours:
            self._extender.add(batch)
            self._reopen_run()
            wake_driver(self._run, self._settings)
        elif batch.private:
            os.unlink(self._path(batch.private))
        return is_ours

    def _reopen_run(self) -> None:
        """The run has ended meanwhile: it can be resumed, and then runs the new jobs. Its driver polls
        after its own last write, so one of the two finds the other's."""
        if self._run.status in _OVER:
            note_facts(self._store, self._run, RunEnded(RunStatus.STOPPED))
            self._run = self._store.find_run(self._run.uuid)

    # ---- checks --------------------------------------------------------------------------------------

    def _check(
        self,
        jobs: Sequence[JobSpec],
        shown: Sequence[JobSpec],
        lineage: str,
        iteration: int,
        conflicts: Mapping[Path, str],
    ) -> None:
        most = most_iterations(self._plan)
        if iteration > most:
            raise InputError(
                f"lineage '{lineage}' has added jobs {most:,} times, as often as dynamic_jobs.max_iterations "
                "allows; nothing was added",
                hint="raise max_iterations in the workflow file, or end the loop",
            )
        reading: BatchReading = self._extender.read(jobs, self._orchestrator, lineage)
        found = [(one.path, one.message) for one in reading.problems if one.path not in conflicts]
        found += conflicts.items()
        found += [
            (("jobs", number, "name"), "the name contains a secret, but names are shown and stored")
            for number, job in enumerate(shown)
            if REDACTED in job.name and REDACTED not in jobs[number].name
        ]
        if found:
            raise BatchRefused(sorted(found, key=_position))
        self._check_fit(reading.jobs)

    def _check_fit(self, jobs: Sequence[PlannedJob]) -> None:
        """Checks labels, and the capacity of the run's last start; a cluster refuses by itself."""
        added, labels = Plan(name="", jobs=tuple(jobs)), self._run.options.labels
        is_local = self._run.options.engine == "local"
        if is_local:
            refuse_elsewhere(added, labels, range(len(jobs)))
        starts = [
            event.fact
            for _, event in self._store.run_events(self._run.uuid)
            if isinstance(event.fact, RunStarted)
        ]
        if not starts:
            return
        offer = starts[-1]
        most = 1 << 62
        offered = RunCapacity(
            cpus=offer.cpus or float(most),
            memory_bytes=offer.memory_bytes or most,
            gpus=offer.gpus,
            nameless_gpus=0 if is_local else most,
            time_s=self._run.options.time_s,
        )
        check_fit(added, offered, frozenset(range(len(jobs))) - jobs_elsewhere(added, labels))

    def _conflicts(self, jobs: Sequence[JobSpec], shown: Sequence[JobSpec]) -> dict[Path, str] | None:
        """Returns existing jobs by their paths. None: this job has added exactly these before."""
        known = {job.name: job for batch in self._own_batches() for job in batch.jobs}
        are_some_known = any(job.name in known for job in jobs)
        found: dict[Path, str] = {}
        for number, job in enumerate(jobs):
            path: Path = ("jobs", number, "name")
            index = self._extender.index_of(job.name)
            if index is None:
                if are_some_known:
                    found[path] = f"'{job.name}' is new, but other jobs of the batch were already added"
            elif job.name not in known:
                by = self._plan.jobs[index].spawned_by
                who = f"'{self._plan.jobs[by].name}' has added it" if by >= 0 else "the workflow file has it"
                found[path] = f"the run has a job '{job.name}' already: {who}"
            elif known[job.name] not in (job, shown[number]):
                differs = _difference(known[job.name], job)
                found[path] = f"'{job.name}' was already added with different content ({differs})"
        return found if found or not are_some_known else None

    def _own_batches(self) -> list[JobsSpawned]:
        return [batch for batch in self._run.spawned if batch.orchestrator == self._orchestrator]

    def _is_stored_already(self, lineage: str, state: Any) -> bool:
        calls = [batch for batch in self._run.spawned if batch.lineage == lineage]
        return bool(calls) and not calls[-1].jobs and calls[-1].state == state and not calls[-1].private

    # ---- secrets -------------------------------------------------------------------------------------

    def _secrets(self, jobs: Sequence[JobSpec]) -> SecretValues:
        """Returns secrets of the workflow, of this job's environment, and of the batch itself."""
        named = SecretValues(secrets_in({"jobs": [{"env": job.env} for job in jobs]}))
        return stored_secrets(self._run, self._settings) | secret_values(dict(os.environ)) | named

    def _with_private_file(self, batch: JobsSpawned, jobs: tuple[JobSpec, ...], state: Any) -> JobsSpawned:
        private = f"{self._run.uuid}.{new_uuid()}.jobs"
        try:
            write_durably(self._path(private), msgspec.json.encode(PrivateBatch(jobs, state)))
        except OSError as error:
            raise StoreError(
                f"there are secrets in the jobs, and the private file for them, {self._path(private)}, "
                f"cannot be written: {error.strerror}"
            ) from error
        return replace(batch, private=private)

    def _path(self, private: str) -> str:
        return os.path.join(spool_dir(store_name(self._settings)), private)

    def _answer(
        self, lineage: str, *, created: tuple[str, ...] = (), existing: tuple[str, ...] = ()
    ) -> Spawned:
        standing = lineage_state(self._run, lineage, self._settings)
        indexes = [self._extender.index_of(name) for name in (*created, *existing)]
        return Spawned(
            lineage=lineage,
            iteration=standing.iteration,
            created=created,
            existing=existing,
            spawned_job_ids=tuple(index + 1 for index in indexes if index is not None),
            state=standing.state,
        )


def _redacted(jobs: Sequence[JobSpec], secrets: SecretValues) -> tuple[JobSpec, ...]:
    shown = redact_document(msgspec.to_builtins(list(jobs)), secrets)
    return tuple(msgspec.convert(shown, list[JobSpec]))


def _position(problem: tuple[Path, str]) -> tuple[str, ...]:
    return tuple(f"{part:09}" if isinstance(part, int) else part for part in problem[0])


def _difference(before: JobSpec, now: JobSpec) -> str:
    names = [name for name in before.__struct_fields__ if getattr(before, name) != getattr(now, name)]
    return ", ".join(names[:3])


def spawn_jobs(jobs: Iterable[Any] = (), *, lineage: str | None = None, state: Any = None) -> Spawned:
    """Adds jobs to the run of the calling job: mappings with the keys of a job in a workflow file. They
    wait until this job has succeeded. Without jobs: stores the final state of the lineage. Raises
    InputError if something is wrong, and then adds nothing."""
    caller = Caller.of(os.environ)
    reading = read_spawn({"jobs": [_plain(job) for job in jobs]})
    if reading.problems:
        raise BatchRefused(reading.problems)
    with _opened() as (store, settings):
        return spawn_in_run(store, settings, caller, reading.jobs, lineage=lineage, state=state)


class Orchestrator:
    """A loop of jobs that add jobs, for one of them: the state of its lineage, and the next jobs."""

    def __init__(self, lineage: str | None = None) -> None:
        """`lineage`: name of the loop. Default: the one this job was added in, otherwise this job's name."""
        self._caller = Caller.of(os.environ)
        self.lineage = self._caller.lineage if lineage is None else lineage
        self._standing: LineageState | None = None

    @classmethod
    def from_env(cls, *, lineage_fallback: str | None = None) -> "Orchestrator":
        """`lineage_fallback`: for the first job of the loop, which no job has added."""
        is_continued = any(os.environ.get(name) for name in LINEAGE_VARIABLES)
        return cls(None if is_continued else lineage_fallback)

    @property
    def generation(self) -> int:
        """Returns how often the lineage has added jobs; 0 in its first job."""
        return self._now().iteration

    @property
    def state(self) -> Any:
        """Returns the state that the last call stored; None before the first."""
        return self._now().state

    def spawn(self, jobs: Iterable[Any], *, state: Any = None) -> Spawned:
        """Adds jobs and stores the state."""
        self._standing = None
        return spawn_jobs(jobs, lineage=self.lineage, state=state)

    def converge(self, *, state: Any = None) -> Spawned:
        """Stores the final state and adds no jobs."""
        return self.spawn((), state=state)

    def _now(self) -> LineageState:
        if self._standing is None:
            with _opened() as (store, settings):
                run = store.find_run(self._caller.run_uuid)
                self._standing = lineage_state(run, self.lineage, settings)
        return self._standing


@contextmanager
def _opened() -> Iterator[tuple[Store, Settings]]:
    settings = load_settings(warn=_warn).settings
    store = open_store_directly(settings, _warn)
    try:
        yield store, settings
    finally:
        store.close()


def _plain(job: Any) -> Any:
    """Models of other clients have to_dict()."""
    if isinstance(job, Mapping):
        return dict(job)
    as_dict = getattr(job, "to_dict", None)
    if as_dict is None:
        raise InputError(f"a job is a mapping with name and command, not {type(job).__name__}")
    return as_dict()


def _warn(message: str) -> None:
    sys.stderr.write(f"joblens: warning: {message}\n")
