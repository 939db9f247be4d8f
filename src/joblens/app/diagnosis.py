"""What joblens can do on this machine: measuring and enforcing, and the store's part."""

import os

from joblens.model.capability import Capability
from joblens.model.settings import Settings


def diagnose(settings: Settings) -> list[Capability]:
    from joblens.agent.capabilities import probe_capabilities

    return [*probe_capabilities(settings.limits.cgroup_parent), *_storage(settings)]


def _storage(settings: Settings) -> list[Capability]:
    from joblens.app.drivers import store_path

    path = os.path.abspath(store_path(settings))
    logs = _writable("logs", settings.output.dir or os.path.dirname(path))
    return [_store(path), _sqlite(), logs, _parquet()]


def _store(path: str) -> Capability:
    from joblens.model.errors import StoreError
    from joblens.stores.sqlite import SqliteStore

    if not os.path.exists(path):
        return _writable("store", os.path.dirname(path))
    notes: list[str] = []
    try:
        store = SqliteStore(path, warn=notes.append)
        store.running()
        store.close()
    except StoreError as error:
        fix = error.hint or "put the file right, or choose another with --store or in joblens.yml"
        return Capability(area="storage", name="store", available=False, reason=str(error), fix=fix)
    reason = "; ".join(notes)
    return Capability(
        area="storage", name="store", available=True, mechanism=f"SQLite file {path}", reason=reason
    )


def _sqlite() -> Capability:
    from joblens.stores.sqlite.opening import sqlite_library

    version, is_safe = sqlite_library()
    return Capability(
        area="storage",
        name="sqlite",
        available=True,
        mechanism=f"SQLite {version}, through apsw",
        reason="" if is_safe else "with several writers at once this version can damage the file",
        fix="" if is_safe else "pip install --upgrade apsw",
    )


def _writable(name: str, folder: str) -> Capability:
    """The folder, or where it would be made."""
    place = folder
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if os.access(place, os.W_OK | os.X_OK):
        return Capability(area="storage", name=name, available=True, mechanism=folder)
    return Capability(
        area="storage",
        name=name,
        available=False,
        reason=f"{place} cannot be written",
        fix="choose another place with --store or in joblens.yml",
    )


def _parquet() -> Capability:
    import importlib.util

    if importlib.util.find_spec("pyarrow") is not None:
        return Capability(area="storage", name="parquet", available=True, mechanism="pyarrow")
    return Capability(
        area="storage",
        name="parquet",
        available=False,
        reason="pyarrow is not installed",
        fix="pip install 'joblens[data]'",
    )
