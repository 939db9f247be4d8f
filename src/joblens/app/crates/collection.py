"""Jobs and runs as RO-Crates: collects everything from the store and from files that still exist, then
writes a folder or a zip file at once."""

import io
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, json

from joblens.analysis.crates.graph import METADATA, PREVIEW
from joblens.analysis.crates.profiles import job_crate, run_crate
from joblens.analysis.runs.status import run_label
from joblens.app.crates.files import CrateFiles, bytes_file, write_crate
from joblens.app.reports.exports import Advance, ExportResult, export_history
from joblens.app.runs.datasets import datasets_of_run
from joblens.app.runs.lookup import records_of_run
from joblens.app.runs.state import state_of_run
from joblens.app.workflows.loader import LoadedSpec, loaded_run
from joblens.model.crate import CrateAbout, CrateFile, CrateJob, CrateRun, CrateStep, CrateTool
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import FileStamp, Record
from joblens.model.runs.run import JobState, Run
from joblens.model.runs.workflow_spec import WorkflowSpec
from joblens.model.values.units import counted
from joblens.plan.workflows.expansion import expand_files
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host
from joblens.spec.workflows.redaction import Depth, redact_spec
from joblens.views.crates.page import job_page, run_page

NO_LICENSE = "No license given: all rights reserved by the author"
MOST_BYTES = 100 << 20


class CrateChoice(Struct, frozen=True, kw_only=True):
    license: str = NO_LICENSE
    with_files: bool = False
    most_bytes: int = MOST_BYTES  # of an included file


def export_crate(
    store: Store, found: Record | Run, output: str, choice: CrateChoice, advance: Advance
) -> ExportResult:
    """`output`: a new folder, or a file that ends in .zip."""
    return _Crate(store, choice, advance).export(found, output)


class _Crate:
    def __init__(self, store: Store, choice: CrateChoice, advance: Advance) -> None:
        self._store = store
        self._choice = choice
        self._advance = advance
        most_bytes = choice.most_bytes if choice.with_files else None
        self._files = CrateFiles(host=read_host().hostname, most_bytes=most_bytes)
        self._contents: dict[str, bytes] = {}
        self._own: list[CrateFile] = []  # added by joblens
        self._provenances: dict[str, tuple[Provenance, CrateFile] | None] = {}
        self._records: list[Record] = []

    def export(self, found: Record | Run, output: str) -> ExportResult:
        if isinstance(found, Record):
            job = self._job(found)
            self._add_records()
            about = self._about()
            document, page = job_crate(job, about), job_page(job, about)
        else:
            run = self._run(found)
            self._add_records()
            about = self._about()
            document, page = run_crate(run, about), run_page(run, about)
        self._contents[METADATA] = json.format(json.encode(document), indent=2) + b"\n"
        self._contents[PREVIEW] = page.encode()
        write_crate(output, self._contents, self._files.copies)
        files = len(self._contents) + len(self._files.copies)
        return ExportResult(jobs=len(self._records), rows=files, files=(output,), note=self._note())

    def _note(self) -> str:
        notes = []
        if self._files.changed:
            changed = counted(len(self._files.changed), "file")
            notes.append(f"{changed} missing or changed since: listed, but not included")
        if self._files.large:
            large = counted(len(self._files.large), "file")
            notes.append(f"{large} too large to include: listed with hash and size")
        return "; ".join(notes)

    def _about(self) -> CrateAbout:
        from joblens import __version__

        return CrateAbout(
            license=self._choice.license,
            published_at_us=time.time_ns() // 1000,
            version=__version__,
            more_files=tuple(self._own),
        )

    def _add(self, path: str, content: bytes, description: str, kind: str) -> CrateFile:
        self._contents[path] = content
        file = bytes_file(path, content, description, kind)
        self._own.append(file)
        return file

    def _add_records(self) -> None:
        text = io.BytesIO()
        export_history(self._store, self._records, text, lambda _: None)
        self._add(
            "joblens/records.jsonl",
            text.getvalue(),
            "The records of all attempts, as `joblens import history` reads them",
            "application/jsonl",
        )

    # ---- jobs -------------------------------------------------------------------------------------------

    def _job(
        self,
        record: Record,
        made: Iterable[str] = (),
        cwd: str = "",
        datasets: Iterable[FileStamp] = (),
    ) -> CrateJob:
        """`made`: output files according to the workflow, for records without stamps. `datasets`: those
        it filled, as finalized."""
        self._records.append(record)
        job, outcome, attempt = record.job, record.outcome, record.attempt
        host = attempt.owner.host if attempt is not None else ""
        cwd = job.cwd or cwd
        provenance = self._provenance("" if attempt is None else attempt.provenance)
        inputs = [self._files.add(stamp, cwd, host) for stamp in record.inputs]
        if provenance is not None:
            inputs += self._scripts(provenance[0], cwd, host)
        found = CrateJob(
            record=record,
            inputs=tuple(dict.fromkeys(file for file in inputs if file is not None)),
            outputs=()
            if outcome is None
            else (
                *self._outputs(record, made, cwd, host),
                *self._filled(record, datasets, cwd, host),
            ),
            provenance=None if provenance is None else provenance[0],
            provenance_file=None if provenance is None else provenance[1],
            container=self._store.details(job.uuid).container if job.container is not None else None,
        )
        self._advance(1)
        return found

    def _scripts(self, provenance: Provenance, cwd: str, host: str) -> Iterator[CrateFile | None]:
        """Returns programs among the job's own files: without them it could not run again."""
        for program in provenance.programs:
            below = os.path.relpath(program.path, cwd) if cwd else ".."
            if program.sha256 and program.bytes is not None and not below.startswith(".."):
                yield self._files.add(FileStamp(below, program.bytes), cwd, host, program.sha256)

    def _outputs(self, record: Record, made: Iterable[str], cwd: str, host: str) -> Iterator[CrateFile]:
        outcome = record.outcome
        assert outcome is not None
        seen = set()
        for stamp in outcome.outputs:
            seen.add(stamp.path)
            if (file := self._files.add(stamp, cwd, host)) is not None:
                yield file
        for artifact in outcome.artifacts:
            folder = outcome.work_dir or cwd
            stamp = FileStamp(artifact.path, artifact.bytes)
            if artifact.path not in seen and (file := self._files.add(stamp, folder, host, artifact.sha256)):
                seen.add(artifact.path)
                yield file
        for path in made:
            is_there = path not in seen and not record.status.is_failure
            if is_there and (file := self._files.add_unstamped(path, cwd, outcome.ended_at_us + 1_000_000)):
                yield file

    def _filled(
        self, record: Record, datasets: Iterable[FileStamp], cwd: str, host: str
    ) -> Iterator[CrateFile]:
        for stamp in datasets:
            file = None if record.status.is_failure else self._files.add(stamp, cwd, host)
            if file is not None:
                yield file

    def _provenance(self, digest: str) -> tuple[Provenance, CrateFile] | None:
        if digest and digest not in self._provenances:
            found = self._store.provenance(digest)
            self._provenances[digest] = (
                None if found is None else (found, self._provenance_file(digest, found))
            )
        return self._provenances.get(digest)

    def _provenance_file(self, digest: str, found: Provenance) -> CrateFile:
        return self._add(
            f"joblens/provenance-{digest[:16]}.json",
            json.format(json.encode(found), indent=2) + b"\n",
            "Provenance of the jobs: machine, code, programs, versions, environment",
            "application/json",
        )

    # ---- runs -------------------------------------------------------------------------------------------

    def _run(self, run: Run) -> CrateRun:
        state = state_of_run(self._store, run)
        known = {record.job.uuid: record for record in records_of_run(self._store, run.uuid)}
        cwd = run.options.cwd
        finalized = self._finalized(run)
        steps = []
        for standing in state.jobs:
            planned = state.plan.jobs[standing.index]
            made = [state.plan.files[index].path for index in planned.output_files]
            filled = [finalized[index] for index in planned.output_datasets if index in finalized]
            attempts = [
                self._job(known.get(result.job_uuid) or self._store.find(result.job_uuid), made, cwd, filled)
                for result in standing.results
            ]
            steps.append(
                CrateStep(
                    index=standing.index,
                    state=standing.state.label,
                    why=standing.why,
                    is_done=standing.state is JobState.COMPLETED,
                    attempts=tuple(attempts),
                )
            )
        by_path = self._by_path(steps)
        loaded = loaded_run(run, keeps_spec=True)
        spec = loaded.spec
        named = [(one.name, one.path, one.producer >= 0) for one in state.plan.files]
        names = {one.name for one in state.plan.files}
        named += [
            (f"{one.name} (dataset)" if one.name in names else one.name, one.path, bool(one.producers))
            for one in state.plan.datasets
        ]
        return CrateRun(
            run=run,
            label=run_label(run),
            plan=state.plan,
            steps=tuple(steps),
            tools=_tools(spec),
            about=_about_workflow(spec),
            identifiers=_identifiers(loaded, run),
            spec_file=self._spec_file(run),
            inputs={name: by_path[path] for name, path, is_made in named if not is_made and path in by_path},
            outputs={name: by_path[path] for name, path, is_made in named if is_made and path in by_path},
            parameters=run.options.parameters,
        )

    def _finalized(self, run: Run) -> dict[int, FileStamp]:
        """Returns datasets by their index in the plan."""
        return {
            one.index: FileStamp(
                one.path, one.bytes, digest=one.sha256, files=one.files, hash_mode=one.hash_mode
            )
            for one in datasets_of_run(self._store, run)
            if one.files is not None
        }

    def _by_path(self, steps: Iterable[CrateStep]) -> dict[str, CrateFile]:
        """Returns the entity of a file of the workflow: its last output, otherwise its first input."""
        found: dict[str, CrateFile] = {}
        jobs = [attempt for step in steps for attempt in step.attempts]
        for job in jobs:
            for file in job.inputs:
                found.setdefault(file.name, file)
        for job in jobs:
            found |= {file.name: file for file in job.outputs}
        return found

    def _spec_file(self, run: Run) -> CrateFile:
        if run.tables:
            tables = json.format(json.encode(run.tables), indent=2) + b"\n"
            about = "Parameter tables of the workflow, as used by the run"
            self._add("joblens/tables.json", tables, about, "application/json")
        public, form = redact_spec(run.spec_text, run.spec_format, depth=Depth.FOR_OTHERS)
        kind = {"yaml": "application/yaml", "json": "application/json"}.get(form, "text/plain")
        redacted = ", without its secrets" if run.is_redacted or public != run.spec_text else ""
        text = public.encode()
        path = f"workflow.{form}"
        self._contents[path] = text
        return bytes_file(path, text, f"The workflow as run{redacted}", kind)


def _tools(spec: WorkflowSpec) -> dict[int, CrateTool]:
    return {path: CrateTool(name=job.name, command=job.command) for path, job in enumerate(spec.jobs)}


def _about_workflow(spec: WorkflowSpec) -> dict[str, Any]:
    about: dict[str, Any] = {"project": spec.project} if spec.project else {}
    if isinstance(spec.metadata, dict):
        return {**about, **{f"metadata.{name}": value for name, value in spec.metadata.items()}}
    return about if spec.metadata is None else {**about, "metadata": spec.metadata}


def _identifiers(loaded: LoadedSpec, run: Run) -> dict[str, str]:
    files = expand_files(loaded.spec, tables=loaded.tables, parameters=run.options.parameters)
    return {file.name: file.identifier for file in files if file.identifier}
