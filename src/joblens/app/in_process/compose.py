"""`compose_advice`: resources for Compose services, from profiles or records."""

from collections.abc import Iterable, Mapping
from typing import Any

from joblens.analysis.sizing.compose import (
    JobUse,
    ServiceAdvice,
    advise_service,
    compose_text,
    service_name,
    use_of_profile,
    use_of_record,
)
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.ports.store import Store

_UNNAMED = "job"


def compose_advice(profiles: Iterable[Any], service: str | None = None) -> str:
    """The text of a Compose file with `deploy: resources:` for each tool. `profiles` are profiles, or records
    as JobMonitor and the history give them; profiles that say no tool are the service `service`. A limit has
    room above the highest use (rightsize's numbers), a reservation is the median of the averages."""
    if isinstance(profiles, Mapping):
        profiles = [profiles]
    uses: dict[str, list[JobUse]] = {}
    for place, item in enumerate(profiles):
        name, use = _use_of(item, place, service)
        if use is not None:
            uses.setdefault(name, []).append(use)
    return compose_text(_advised(uses))


def advise_stored(store: Store, query: HistoryQuery) -> list[ServiceAdvice]:
    """A service for each tool of the jobs, or for each name where they have none."""
    uses: dict[str, list[JobUse]] = {}
    for place, record in enumerate(store.records(query)):
        use = use_of_record(record, place)
        if use is not None:
            uses.setdefault(_service_of(record), []).append(use)
    return _advised(uses)


def _advised(uses: Mapping[str, list[JobUse]]) -> list[ServiceAdvice]:
    return [advise_service(name, uses[name]) for name in sorted(uses)]


def _service_of(record: Record) -> str:
    return service_name(record.job.tool or record.job.name)


def _use_of(item: Any, place: int, service: str | None) -> tuple[str, JobUse | None]:
    if isinstance(item, Record):
        return service_name(service or _service_of(item)), use_of_record(item, place)
    if not isinstance(item, Mapping):
        raise InputError(f"item {place} is no profile and no record, but {type(item).__name__}")
    if "resource_usage" in item:
        from joblens.analysis.formats.history import from_history_record

        record = from_history_record(dict(item))
        return service_name(service or _service_of(record)), use_of_record(record, place)
    profile = item.get("detailed_profile", item)
    name = service_name(service or str(item.get("tool") or _UNNAMED))
    return name, use_of_profile(dict(profile or {}), name, place)
