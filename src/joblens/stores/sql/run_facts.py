"""What is said about workflows and runs, as the values of rows. Pure: each store has its own statements."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from joblens.model.errors import StoreCorrupt
from joblens.model.runs.run import Run, RunEvent, RunStatus, Workflow

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_json = msgspec.json.Encoder()


def workflow_row(workflow: Workflow) -> tuple[str, str, str, str, bytes]:
    """uuid, name, user, source, all of it"""
    plain = replace(workflow, number=None)
    return plain.uuid, plain.name, plain.user, plain.source, _json.encode(plain)


def moved(runs: Iterable[Run], instead: Mapping[str, str]) -> list[Run]:
    """To the workflow that there is `instead` of theirs, by UUIDs."""
    return [replace(run, workflow_uuid=instead.get(run.workflow_uuid, run.workflow_uuid)) for run in runs]


def event_row(event: RunEvent) -> tuple[str, str, int, str, bytes]:
    """uuid, uuid of the run, at_us, kind, fact"""
    kind = type(event.fact).__struct_config__.tag
    return event.uuid, event.run_uuid, event.at_us, str(kind), _json.encode(event.fact)


def run_row(run: Run) -> tuple[str | bytes, ...]:
    """Without what the store gives it, or its events tell."""
    plain = replace(
        run,
        number=None,
        workflow_number=None,
        spec_text="",
        tables={},
        status=RunStatus.CREATED,
        started_at_us=None,
        ended_at_us=None,
        owner=None,
        logs_dir="",
        spawned=(),
        jobs=run.declared_jobs,
        raised=(),
    )
    packed = packed_spec(run.spec_text, run.tables)
    return run.uuid, run.workflow_uuid, _json.encode(plain), packed


def packed_spec(text: str, tables: dict[str, Any]) -> bytes:
    return zstd.compress(msgspec.json.encode((text, tables)))


def unpacked_spec(data: bytes, run_uuid: str) -> tuple[str, dict[str, Any]]:
    try:
        return msgspec.json.decode(zstd.decompress(data), type=tuple[str, dict[str, Any]])
    except (zstd.ZstdError, EOFError, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"the spec of run {run_uuid} cannot be read from the store ({error})") from error
