"""Files, people and licences of a crate."""

from joblens.analysis.crates.graph import CRATE_VERSION, CrateGraph, Ref, percent_encoded
from joblens.model.crate import CrateAbout, CrateFile

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
    """It is part of the crate, or told of with size and hash."""
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
    """What the record has of a file that cannot be read any more."""
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
        description="Ran the jobs and measured what they used",
    )


def instant(at_us: int) -> str:
    """2026-11-15T10:00:00.123+00:00: the form that the profiles ask for."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")
