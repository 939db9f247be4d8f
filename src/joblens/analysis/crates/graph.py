"""RO-Crate entity graph, with files, people and licences."""

from collections.abc import Iterable
from typing import Any

from joblens.model.crate import CrateAbout, CrateFile

CRATE_VERSION = "https://w3id.org/ro/crate/1.1"
_TERMS = "https://w3id.org/ro/terms/workflow-run#"
# Terms of the run profiles beyond RO-Crate 1.1; inlined, so that a reader needs one context.
_RUN_TERMS = (
    "ContainerImage",
    "DockerImage",
    "ParameterConnection",
    "SIFImage",
    "connection",
    "containerImage",
    "environment",
    "registry",
    "resourceUsage",
    "sha256",
    "sourceParameter",
    "tag",
    "targetParameter",
)
# Terms for datasets that exist neither in schema.org nor in the profiles.
_OWN_TERMS = ("fileCount", "hashMode")
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")

Ref = dict[str, str]


class CrateGraph:
    """Entities by id. Adding an entity twice merges it: lists are extended, other values are kept."""

    def __init__(self) -> None:
        self._entities: dict[str, dict[str, Any]] = {}
        self._values: dict[tuple[str, ...], str] = {}
        self._referred: set[tuple[str, str, str]] = set()

    def __contains__(self, ident: str) -> bool:
        return ident in self._entities

    def add(self, ident: str, kind: str | tuple[str, ...], **properties: Any) -> Ref:
        """Adds an entity; omits None and empty values."""
        entity = self._entities.setdefault(ident, {"@id": ident, "@type": kind})
        for name, value in properties.items():
            if value is None or value in ("", []):
                continue
            if isinstance(value, list):
                self.extend(ident, name, value)
            else:
                entity.setdefault(name, value)
        return {"@id": ident}

    def extend(self, ident: str, name: str, values: Iterable[Any]) -> None:
        """Extends a list without duplicate references."""
        known = self._entities[ident].setdefault(name, [])
        for value in values:
            key = (ident, name, value["@id"]) if isinstance(value, dict) else None
            if key is None or key not in self._referred:
                known.append(value)
            if key is not None:
                self._referred.add(key)

    def retype(self, ident: str, kind: tuple[str, ...]) -> None:
        self._entities[ident]["@type"] = kind

    def value(self, kind: str, name: str, value: Any, **properties: Any) -> Ref:
        """Adds a named value, once for all jobs that have it."""
        key = (kind, name, repr(value), *(f"{word}={one}" for word, one in sorted(properties.items())))
        ident = self._values.setdefault(key, f"#{kind}-{len(self._values) + 1}-{percent_encoded(name)}")
        return self.add(ident, "PropertyValue", name=name, value=plain(value), **properties)

    def document(self) -> dict[str, Any]:
        context: list[Any] = [
            f"{CRATE_VERSION}/context",
            {
                **{term: f"{_TERMS}{term}" for term in _RUN_TERMS},
                **{term: f"urn:joblens:{term}" for term in _OWN_TERMS},
            },
        ]
        return {"@context": context, "@graph": [_compact(entity) for entity in self._entities.values()]}


def plain(value: Any) -> Any:
    """Returns the value, lists and objects as JSON text: JSON-LD would read them as entities."""
    if isinstance(value, bool | int | float | str):
        return value
    from msgspec import json

    return json.encode(value).decode()


def percent_encoded(text: str) -> str:
    """Encodes text for the path of a URI."""
    return "".join(
        chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )


def _compact(entity: dict[str, Any]) -> dict[str, Any]:
    """Replaces lists of one item by the item."""
    return {
        name: value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
        for name, value in entity.items()
    }


ROOT = "./"
METADATA = "ro-crate-metadata.json"
PREVIEW = "ro-crate-preview.html"
_PROFILES = {
    "process": ("https://w3id.org/ro/wfrun/process/0.5", "Process Run Crate", "0.5"),
    "workflow": ("https://w3id.org/ro/wfrun/workflow/0.5", "Workflow Run Crate", "0.5"),
    "provenance": ("https://w3id.org/ro/wfrun/provenance/0.5", "Provenance Run Crate", "0.5"),
    "workflow-crate": ("https://w3id.org/workflowhub/workflow-ro-crate/1.0", "Workflow RO-Crate", "1.0"),
}


def add_root(
    graph: CrateGraph, about: CrateAbout, *, name: str, description: str, profiles: tuple[str, ...]
) -> None:
    conforms = [CRATE_VERSION]
    if "workflow-crate" in profiles:
        conforms.append(_PROFILES["workflow-crate"][0])
    graph.add(
        METADATA,
        "CreativeWork",
        about={"@id": ROOT},
        conformsTo=[{"@id": ident} for ident in conforms],
    )
    graph.add(
        ROOT,
        "Dataset",
        name=name,
        description=description,
        datePublished=instant(about.published_at_us),
        license=_license(graph, about.license),
        conformsTo=[_profile(graph, profile) for profile in profiles],
    )
    for file in about.more_files:
        add_file(graph, file)
    graph.add(PREVIEW, "CreativeWork", about={"@id": ROOT}, name="Preview", encodingFormat="text/html")


def _profile(graph: CrateGraph, profile: str) -> Ref:
    ident, name, version = _PROFILES[profile]
    return graph.add(ident, "CreativeWork", name=name, version=version)


def _license(graph: CrateGraph, license_: str) -> Ref | str:
    if not license_.startswith(("http://", "https://")):
        return license_
    name = license_.rstrip("/").rsplit("/", 1)[-1]
    return graph.add(license_, "CreativeWork", name=name, description=f"The licence {name}")


def add_file(graph: CrateGraph, file: CrateFile) -> Ref:
    """Adds a file: as part of the crate, or by size and hash."""
    ref = {"@id": file.id}
    graph.extend(ROOT, "hasPart", [ref])
    if file.is_folder:
        return graph.add(
            file.id,
            "Dataset",
            name=file.name,
            description=file.description,
            contentSize=None if file.bytes is None else str(file.bytes),
            fileCount=file.files,
            sha256=file.sha256,
            hashMode=file.hash_mode,
        )
    return graph.add(
        file.id,
        "File",
        name=file.name,
        description=file.description,
        contentSize=None if file.bytes is None else str(file.bytes),
        encodingFormat=file.kind or "application/octet-stream",
        sha256=file.sha256,
        dateModified=None if file.modified_at_us is None else instant(file.modified_at_us),
        identifier=_digest(graph, file),
    )


def _digest(graph: CrateGraph, file: CrateFile) -> Ref | None:
    """Returns the recorded digest of a file that can no longer be read."""
    if file.sha256 or not file.digest:
        return None
    return graph.add(
        f"#blake2b-{file.digest}",
        "PropertyValue",
        propertyID="blake2b-128",
        name="blake2b",
        value=file.digest,
    )


def add_person(graph: CrateGraph, user: str) -> Ref:
    return graph.add(f"#user-{percent_encoded(user or 'unknown')}", "Person", name=user or "unknown")


def add_joblens(graph: CrateGraph, version: str) -> Ref:
    return graph.add(
        "#joblens",
        "SoftwareApplication",
        name="joblens",
        softwareVersion=version,
        description="Ran the jobs and measured their resource use",
    )


def instant(at_us: int) -> str:
    """Formats as the profiles require: 2026-11-15T10:00:00.123+00:00."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")
