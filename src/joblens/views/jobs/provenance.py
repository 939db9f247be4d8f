"""What a job ran in, and its files: a few lines of it, or all."""

from collections.abc import Iterator, Sequence

from joblens.model.jobs.job import Record
from joblens.model.jobs.provenance import CodeVersion, Program, Provenance
from joblens.model.jobs.run_link import FileStamp
from joblens.model.values.ids import short
from joblens.model.values.units import format_bytes
from joblens.views.text.numbers import counted
from joblens.views.text.style import Palette, clean, fold, pad, wrap

_LABEL = 16
_FILES_SHOWN = 5
_DIGEST_SHOWN = 12
_OF_WORDS = frozenset({"machine", "limits", "versions", "seeds", "not known"})
NOTHING = "nobody looked at what it ran in"

Pair = tuple[str, str]


def provenance_lines(
    record: Record, provenance: Provenance | None, width: int, paint: Palette, *, is_whole: bool = False
) -> list[str]:
    """A section, or nothing where there is nothing to say."""
    pairs = list(_pairs(record, provenance, is_whole=is_whole))
    if not pairs:
        if not is_whole:
            return []
        pairs = [("", NOTHING)]
    elif not is_whole and provenance is not None:
        pairs.append(("more", f"joblens show {short(record.job.uuid)} --provenance"))
    lines = ["", paint.paint("Provenance", "bold")]
    before = ""
    for name, value in pairs:
        label = "" if name == before else name
        before = name
        pieces = (wrap if name in _OF_WORDS else fold)(clean(value), max(20, width - _LABEL - 3))
        for piece in pieces:
            lines.append(f"  {paint.paint(pad(label, _LABEL), 'dim')} {piece}")
            label = ""
    return lines


def _pairs(record: Record, provenance: Provenance | None, *, is_whole: bool) -> Iterator[Pair]:
    job, outcome = record.job, record.outcome
    if job.rerun_of:
        yield "repeats", short(job.rerun_of)
    if provenance is not None:
        yield from _ran_in(provenance, is_whole=is_whole)
    if job.seeds:
        yield "seeds", ", ".join(f"{name}={value}" for name, value in job.seeds.items())
    yield from _files("inputs", record.inputs, is_whole=is_whole)
    yield from _files("outputs", outcome.outputs if outcome is not None else (), is_whole=is_whole)
    if provenance is not None and is_whole:
        yield from _everything(provenance)
    if provenance is not None:
        for part, why in provenance.unknown.items():
            yield "not known", f"{part}: {why}"


def _ran_in(provenance: Provenance, *, is_whole: bool) -> Iterator[Pair]:
    if provenance.code is not None:
        yield "code", _code(provenance.code, is_whole=is_whole)
    for program in provenance.programs:
        yield "programs", _program(program, is_whole=is_whole)
    if "python" in provenance.versions:
        packages = len(provenance.versions) - 2
        yield "Python", f"{provenance.versions['python']} with {counted(max(0, packages), 'package')}"
    hardware = provenance.hardware
    parts = [
        provenance.host,
        hardware.cpu_model,
        "" if hardware.cpus is None else counted(hardware.cpus, "CPU"),
        "" if hardware.memory_bytes is None else format_bytes(hardware.memory_bytes),
        *hardware.gpus,
        provenance.system,
    ]
    yield "machine", ", ".join(part for part in parts if part)


def _code(code: CodeVersion, *, is_whole: bool) -> str:
    commit = (code.commit if is_whole else code.commit[:_DIGEST_SHOWN]) or "no commit yet"
    branch = f" on {code.branch}" if code.branch else ""
    changes = {True: ", with changes", False: "", None: ", changes not known"}[code.is_dirty]
    if is_whole and code.changes_digest:
        changes += f" {code.changes_digest}"
    remote = f" of {code.remote}" if code.remote and is_whole else ""
    return f"{commit}{branch}{changes}{remote}  {code.root}"


def _program(program: Program, *, is_whole: bool) -> str:
    size = "" if program.bytes is None else f"  {format_bytes(program.bytes)}"
    return f"{program.path}{size}{_digest(program.sha256, is_whole=is_whole)}"


def _files(name: str, stamps: Sequence[FileStamp], *, is_whole: bool) -> Iterator[Pair]:
    shown = stamps if is_whole else stamps[:_FILES_SHOWN]
    for each in shown:
        if each.size is None:
            yield name, f"{each.path}  {'was not there' if each.mtime_ns is None else 'a folder'}"
        else:
            files = "" if each.files is None else f"{counted(each.files, 'file')}, "
            digest = _digest(each.digest or "", is_whole=is_whole)
            yield name, f"{each.path}  {files}{format_bytes(each.size)}{digest}"
    if len(shown) < len(stamps):
        yield name, f"and {len(stamps) - len(shown)} more"


def _digest(digest: str, *, is_whole: bool) -> str:
    if not digest:
        return ""
    return f"  sha256 {digest}" if is_whole else f"  {digest[:_DIGEST_SHOWN]}"


def _everything(provenance: Provenance) -> Iterator[Pair]:
    yield "kernel", provenance.kernel
    if provenance.hardware.architecture:
        yield "architecture", provenance.hardware.architecture
    yield "limits", ", ".join(f"{name} {value}" for name, value in provenance.limits.items())
    for name, value in sorted(provenance.environment.items()):
        yield "environment", f"{name}={value}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in provenance.versions.items())
