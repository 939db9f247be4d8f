"""Provenance collector: looks up the environment of jobs on its own thread. No start waits for it, and an end
waits only briefly, if the job was shorter than the lookup."""

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from joblens.model.jobs.details import Provenance, digest_of
from joblens.model.jobs.job import Attempt, FileStamp, Job, Record, is_of_workflow
from joblens.model.redaction.names import is_lasting_env
from joblens.model.writes import JobStarted, ProvenanceSeen, Write
from joblens.probes.host.machine_load import HostFacts
from joblens.probes.provenance.program_files import (
    CommandKind,
    Mark,
    are_unchanged,
    shell_of_workflows,
    starting_words,
)

if TYPE_CHECKING:
    from joblens.agent.provenance.parts import ProvenanceParts
    from joblens.agent.runtime.recorder import Recorder

_NO_CHANGE_S = 0.002  # no program can run and change a file in less: many starts at once share a lookup
_FRESH_S = 2.0  # how long a lookup is reused for the next command of its kind
_TIMEOUT_S = 0.1  # total time that ends of jobs may wait, per process
_MOST_KINDS = 500  # kinds of commands per process that are distinguished by the files they start


class _Lookup:
    """Lookup of the parts for one kind of command."""

    def __init__(self, *, is_after_change: bool) -> None:
        self.is_after_change = is_after_change
        self.started_s = time.monotonic()
        self.lookup_started_at_ns = time.time_ns()
        self.marks: dict[str, Mark] = {}  # marks of the files that it depends on, when they were read
        self.digest = ""
        self.partial: Provenance | None = None  # without the answer of git
        self.is_done = threading.Event()
        self._checked_s = 0.0

    def holds(self) -> bool:
        """Returns whether it is valid for a job that starts now."""
        now_s = time.monotonic()
        if self.is_done.is_set() and now_s - self.started_s > _FRESH_S:
            return False
        if now_s - self._checked_s < _NO_CHANGE_S:
            return True
        self._checked_s = now_s
        return are_unchanged(self.marks)


class _Request:
    """Request of one job."""

    def __init__(self, lookup: _Lookup, *, wants_digests: bool) -> None:
        self.lookup = lookup
        self.attempt: Attempt | None = None  # already written, to be written again with the digest
        self.inputs: tuple[FileStamp, ...] = ()
        self.has_inputs = threading.Event()
        self.wants_digests = wants_digests


class ProvenanceCollector:
    """Call `begin` when a job starts, `follow` when its attempt is written, `complete` when it has ended.
    Thread-safe."""

    def __init__(
        self,
        recorder: "Recorder",
        host: HostFacts,
        version: str,
        job_rlimits: tuple[tuple[int, int, int], ...] = (),
        *,
        largest_hashed: int,
        is_on: bool = True,
    ) -> None:
        self._recorder = recorder
        self._about = host, version, job_rlimits
        self._largest = largest_hashed
        self._is_on = is_on
        self._lock = threading.Lock()
        self._lookups: dict[CommandKind, _Lookup] = {}
        self._requests: dict[str, _Request] = {}
        self._written: set[str] = set()  # digests that were written
        self._wanted: deque[tuple[CommandKind, _Lookup | None, _Request, Job] | None] = deque()
        self._wanted_count = threading.Semaphore(0)
        self._timeout_s = _TIMEOUT_S
        self._thread: threading.Thread | None = None

    # ---- called by owners of jobs ------------------------------------------------------------------

    def begin(self, job: Job) -> str:
        """Returns the digest of its environment; '': unknown, and looked up now."""
        if not self._is_on or job.attached:
            return ""
        kind = self._kind(job)
        with self._lock:
            lookup = self._lookups.get(kind)
            is_new = lookup is None or not lookup.holds()
            if is_new:
                has_changed = lookup is not None and not are_unchanged(lookup.marks)
                lookup = self._lookups[kind] = _Lookup(is_after_change=has_changed)
            assert lookup is not None
            wants_digests = any(each.digest is None and each.size is not None for each in job.inputs)
            if lookup.digest and not wants_digests:
                return lookup.digest
            request = self._requests[job.uuid] = _Request(lookup, wants_digests=wants_digests)
            if is_new or wants_digests:
                self._want((kind, lookup if is_new else None, request, job))
                self._start_thread()
        return lookup.digest

    def follow(self, uuid: str, attempt: Attempt) -> None:
        """The attempt is written; it is written again once its environment is known."""
        with self._lock:
            request = self._requests.get(uuid)
            if request is None or attempt.provenance:
                return
            request.attempt = attempt
            digest = request.lookup.digest
        if digest:
            self._write_again(uuid, request)

    def complete(self, record: Record) -> Record:
        """Adds the environment, and the files as the job left them."""
        job, attempt, outcome = record.job, record.attempt, record.outcome
        with self._lock:
            request = self._requests.pop(job.uuid, None)
        if attempt is None or outcome is None or not self._is_on or job.attached:
            return record
        if request is not None:
            request.attempt = None
            digest = attempt.provenance or self._await_digest(request)
            if digest:
                attempt = replace(attempt, provenance=digest)
            if request.wants_digests and self._wait(request.has_inputs):
                outcome = replace(outcome, inputs=request.inputs)
        if job.outputs or (not is_of_workflow(job) and (len(job.argv) > 1 or job.is_shell)):
            from joblens.agent.provenance.parts import outputs_of

            outputs = outputs_of(job, job.cwd, attempt.started_at_us, self._largest)
            if outputs:
                outcome = replace(outcome, outputs=outputs)
        if attempt is record.attempt and outcome is record.outcome:
            return record
        return replace(record, attempt=attempt, outcome=outcome)

    def close(self) -> None:
        """Does not wait for running lookups."""
        if self._thread is not None:
            self._want(None)

    def _kind(self, job: Job) -> CommandKind:
        search = os.environ.get("PATH", "") if job.queue else job.env.get("PATH", "")
        environment = None
        if job.background and not job.queue:  # it has its own
            environment = tuple(sorted((name, job.env[name]) for name in job.env if is_lasting_env(name)))
        words: tuple[str, ...] = ()
        if job.container is None:
            shell = shell_of_workflows() if job.is_shell and is_of_workflow(job) else "/bin/sh"
            words = starting_words(job.argv, is_shell=job.is_shell, shell=shell)
        kind = CommandKind(job.cwd, words, search, environment)
        if kind not in self._lookups and len(self._lookups) >= _MOST_KINDS:
            return CommandKind(job.cwd, (), "", is_one_of_many=True)
        return kind

    def _await_digest(self, request: _Request) -> str:
        lookup = request.lookup
        if self._wait(lookup.is_done):
            return lookup.digest
        partial = lookup.partial
        return "" if partial is None else self._store(partial)

    def _wait(self, event: threading.Event) -> bool:
        """Waits briefly for the lookup; the sum of all waits is bounded."""
        if event.is_set():
            return True
        began_s = time.monotonic()
        is_there = self._timeout_s > 0 and event.wait(self._timeout_s)
        self._timeout_s -= time.monotonic() - began_s
        return is_there

    def _store(self, provenance: Provenance) -> str:
        digest = digest_of(provenance)
        with self._lock:
            is_new = digest not in self._written
            self._written.add(digest)
        if is_new:
            self._recorder.put([ProvenanceSeen(digest, provenance)], can_wait=True)
        return digest

    def _write_again(self, uuid: str, request: _Request) -> None:
        attempt = request.attempt
        if attempt is not None:
            write: Write = JobStarted(uuid, replace(attempt, provenance=request.lookup.digest))
            self._recorder.put([write], can_wait=True)

    def _want(self, wanted: tuple[CommandKind, _Lookup | None, _Request, Job] | None) -> None:
        self._wanted.append(wanted)
        self._wanted_count.release()

    # ---- the thread ----------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="joblens-provenance", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started: provenance stays unknown
                self._is_on = False
                self._requests.clear()
                return
            self._thread = thread

    def _run(self) -> None:
        from joblens.agent.provenance.parts import ProvenanceParts, with_digest

        parts = ProvenanceParts(*self._about)
        while True:
            self._wanted_count.acquire()
            wanted = self._wanted.popleft()
            if wanted is None:
                return
            kind, lookup, request, job = wanted
            if lookup is not None:
                try:
                    self._collect(parts, kind, lookup)
                except Exception as error:  # noqa: BLE001 - the next lookups must still run
                    lookup.digest = self._store(Provenance(unknown={"all of it": f"{error!r}"}))
                finally:
                    lookup.is_done.set()
                self._notify_followers(lookup)
            if request.wants_digests:
                unread = (each for each in job.inputs if each.digest is None and each.size is not None)
                request.inputs = tuple(with_digest(each, job.cwd, self._largest) for each in unread)
                request.has_inputs.set()

    def _collect(self, parts: "ProvenanceParts", kind: CommandKind, lookup: _Lookup) -> None:
        marks: dict[str, Mark] = {}
        if lookup.is_after_change:
            parts.forget_changes()
        found, question, root = parts.collect(kind, started_at_ns=lookup.lookup_started_at_ns, marks=marks)
        lookup.marks = marks
        if question is not None:
            lookup.partial = found
            found = parts.with_changes(found, question, root)
        lookup.digest = self._store(found)

    def _notify_followers(self, lookup: _Lookup) -> None:
        with self._lock:
            waiting = [
                (uuid, request) for uuid, request in self._requests.items() if request.lookup is lookup
            ]
        for uuid, request in waiting:
            self._write_again(uuid, request)
