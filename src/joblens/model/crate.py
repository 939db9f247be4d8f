"""Content of an RO-Crate: jobs with their input and output files, and their run."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.model.jobs.details import ContainerFacts, Provenance
from joblens.model.jobs.job import Record
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run


class CrateFile(Struct, frozen=True, kw_only=True):
    """An input or output of a job: a file or folder."""

    id: str  # its path in the crate, or the URI of its origin
    name: str  # as the job names it
    bytes: int | None = None
    sha256: str = ""
    digest: str = ""  # blake2b, as the record has it
    modified_at_us: int | None = None
    kind: str = ""  # media type
    description: str = ""
    is_folder: bool = False
    files: int | None = None  # in a dataset
    hash_mode: str = ""  # of a dataset: input of its sha256
    is_inside: bool = False  # the crate has a copy


class CrateJob(Struct, frozen=True, kw_only=True):
    """One attempt."""

    record: Record
    inputs: tuple[CrateFile, ...] = ()
    outputs: tuple[CrateFile, ...] = ()
    provenance: Provenance | None = None
    provenance_file: CrateFile | None = None
    container: ContainerFacts | None = None


class CrateStep(Struct, frozen=True, kw_only=True):
    """One job of a workflow with its attempts, oldest first."""

    index: int
    state: str
    why: str = ""
    is_done: bool = False
    attempts: tuple[CrateJob, ...] = ()


class CrateTool(Struct, frozen=True, kw_only=True):
    """One entry of a workflow file, shared by the jobs of a sweep."""

    name: str
    command: str = ""


class CrateRun(Struct, frozen=True, kw_only=True):
    run: Run
    label: str  # 3.2
    plan: Plan
    steps: tuple[CrateStep, ...]
    tools: Mapping[int, CrateTool]  # by index of the entry
    spec_file: CrateFile
    inputs: Mapping[str, CrateFile]  # by name in the workflow
    outputs: Mapping[str, CrateFile]
    parameters: Mapping[str, Any]
    about: Mapping[str, Any] = {}  # from the workflow file: project, metadata
    identifiers: Mapping[str, str] = {}  # persistent identifiers of files, by name in the workflow


class CrateAbout(Struct, frozen=True, kw_only=True):
    """Metadata of a crate."""

    license: str
    published_at_us: int
    version: str  # of joblens
    more_files: tuple[CrateFile, ...] = ()  # records, tables
