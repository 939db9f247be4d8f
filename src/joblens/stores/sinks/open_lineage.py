"""OpenLineage sink: events of jobs and runs to a file or a URL."""

import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from joblens import __version__
from joblens.analysis.formats.open_lineage import job_event, run_event
from joblens.files.private import make_private_folder
from joblens.files.rotation import RotatingFile
from joblens.model.errors import InputError
from joblens.model.jobs.details import CodeVersion, Provenance
from joblens.model.jobs.job import Record
from joblens.model.settings import LineageSettings
from joblens.stores.sinks import SelectiveSink
from joblens.stores.sinks.queued import QueuedSink

if TYPE_CHECKING:
    from joblens.model.runs.run import Run, Workflow
    from joblens.ports.store import Sink

_POST_S = 10.0
_MOST_REMEMBERED = 1000  # versions of code, and names of workflows


class _Target(Protocol):
    def send(self, events: Sequence[dict[str, Any]]) -> None:
        """Raises OSError."""
        ...

    def close(self) -> None: ...


class _File:
    """Several processes may append."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = RotatingFile(path, 0, 0)

    def send(self, events: Sequence[dict[str, Any]]) -> None:
        make_private_folder(os.path.dirname(os.path.abspath(self._path)))
        self._file.append(b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def close(self) -> None:
        self._file.close()


class _Url:
    def __init__(self, url: str, api_key: str) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": f"joblens/{__version__}"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def send(self, events: Sequence[dict[str, Any]]) -> None:
        for event in events:
            request = urllib.request.Request(  # noqa: S310 - the scheme was checked
                self._url, msgspec.json.encode(event), self._headers
            )
            try:
                with urllib.request.urlopen(request, timeout=_POST_S) as answer:  # noqa: S310
                    answer.read()
            except OSError as error:
                raise OSError(f"{_host_of(self._url)}: {_reason(error)}") from error

    def close(self) -> None:
        pass


def _host_of(url: str) -> str:
    """The path and the query may have a key."""
    return urllib.parse.urlsplit(url).netloc


def _reason(error: OSError) -> str:
    found = getattr(error, "reason", None) if not isinstance(error, urllib.error.HTTPError) else error
    return getattr(found, "strerror", None) or str(found or error)


class LineageSink(SelectiveSink):
    """Behind a QueuedSink, which reports errors."""

    def __init__(self, targets: Sequence[_Target], namespace: str) -> None:
        self._targets = targets
        self._namespace = namespace
        self._codes: dict[str, CodeVersion | None] = {}
        self._workflows: dict[str, str] = {}

    def job_started(self, record: Record) -> None:
        self._send([self._event(record)])

    def jobs_ended(self, records: Sequence[Record]) -> None:
        self._send([self._event(record) for record in records])

    def provenance_seen(self, digest: str, provenance: Provenance) -> None:
        if len(self._codes) < _MOST_REMEMBERED:
            self._codes[digest] = provenance.code

    def run_changed(self, workflow: "Workflow", run: "Run") -> None:
        if run.is_command:
            return
        if len(self._workflows) < _MOST_REMEMBERED:
            self._workflows[run.uuid] = workflow.name
        event = run_event(workflow, run, self._namespace)
        if event is not None:
            self._send([event])

    def close(self) -> None:
        for target in self._targets:
            target.close()

    def _event(self, record: Record) -> dict[str, Any]:
        digest = record.attempt.provenance if record.attempt is not None else ""
        link = record.job.run
        workflow = self._workflows.get(link.run_uuid, "") if link is not None else ""
        return job_event(record, self._namespace, self._codes.get(digest), workflow)

    def _send(self, events: Sequence[dict[str, Any]]) -> None:
        """One target that fails does not keep events from the other."""
        first: OSError | None = None
        for target in self._targets:
            try:
                target.send(events)
            except OSError as error:
                first = first or error
        if first is not None:
            raise first


def open_lineage_sink(settings: LineageSettings, warn: Callable[[str], None]) -> QueuedSink:
    """The sink that the settings describe, behind a queue. Raises InputError for a URL that is none."""
    if settings.url and not settings.url.startswith(("http://", "https://")):
        raise InputError("lineage.url: expected http:// or https://")
    if settings.url and "@" in urllib.parse.urlsplit(settings.url).netloc:
        raise InputError("lineage.url: has a user name or password", hint="set OPENLINEAGE_API_KEY instead")

    def make() -> "Sink":
        targets: list[_Target] = []
        if settings.file:
            targets.append(_File(settings.file))
        if settings.url:
            targets.append(_Url(settings.url, os.environ.get("OPENLINEAGE_API_KEY", "")))
        return LineageSink(targets, settings.namespace)

    return QueuedSink("OpenLineage", make, warn, settings.flush)
