"""Identifiers of files in an RO-Crate (`identifier`): which files may have one, and which texts may be one.

A crate names each of its entities once. Files that jobs make are described by the run that made them."""

from collections.abc import Sequence

from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.workflow_spec import FileSpec
from joblens.plan.workflows.entries import Expanded
from joblens.plan.workflows.problems import Path, Problems

# Names that crates use for entities of their own.
_RESERVED = frozenset(("./", "ro-crate-metadata.json"))
_RESERVED_BEGINNINGS = ("#torc-", "#software-", "#job-")


def check_identifiers(
    files: Sequence[Expanded], jobs: Sequence[PlannedJob], *, uses_crate: bool, problems: Problems
) -> None:
    if not any(each.value.identifier is not None for each in files):
        return
    inputs = {place for job in jobs for place in job.input_files}
    makers = {place: job.name for job in jobs for place in job.output_files}
    paths = {each.value.path: each.value.name for each in files}
    owners: dict[str, str] = {}
    for place, each in enumerate(files):
        file: FileSpec = each.value
        if file.identifier is None:
            continue
        where: Path = ("files", each.entry, "identifier")
        if not uses_crate:
            message = f"identifier of file '{file.name}' needs enable_ro_crate: true at the top of the file"
        elif place in makers:
            message = (
                f"identifier of file '{file.name}': job '{makers[place]}' makes it, "
                "and only files that no job makes have one"
            )
        elif place not in inputs and file.st_mtime is None:
            message = f"identifier of file '{file.name}': no job reads it"
        else:
            message = _wrong(file, file.identifier, paths, owners)
        if message:
            problems.note(where, message)


def _wrong(file: FileSpec, identifier: str, paths: dict[str, str], owners: dict[str, str]) -> str:
    """What is wrong with the text itself; nothing: ''. Remembers its owner."""
    if not identifier.strip():
        return f"identifier of file '{file.name}' must not be empty"
    if identifier in _RESERVED or identifier.startswith(_RESERVED_BEGINNINGS):
        return f"identifier '{identifier}' of file '{file.name}' is reserved for the crate's own entities"
    if paths.get(identifier, file.name) != file.name:
        return f"identifier '{identifier}' of file '{file.name}' is the path of file '{paths[identifier]}'"
    owner = owners.setdefault(identifier, file.name)
    if owner != file.name:
        return f"files '{owner}' and '{file.name}' have the same identifier '{identifier}'"
    return ""
