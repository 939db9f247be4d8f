"""Results of benchmarks on disk: one private JSON file each."""

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from joblens.analysis.comparing.bench import COMMANDS, FORMAT, TOOL, Document
from joblens.app.wiring.drivers import store_home, store_name
from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder
from joblens.model.errors import BenchmarkError
from joblens.model.settings import Settings
from joblens.model.values.json_text import decode_json
from joblens.model.values.units import listed

LATEST = "latest"
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_NEEDED = {
    COMMANDS: ("variants", "comparisons", "baseline"),
    TOOL: ("tool", "device", "runs", "metrics", "command"),
}


def default_results_dir(settings: Settings) -> str:
    """Next to the logs of jobs."""
    return os.path.join(store_home(store_name(settings)), "benchmarks")


def new_id(title: str, created_time: str) -> str:
    """Returns a readable id that sorts by time for the same title, and is unique."""
    when = created_time.partition(".")[0].replace("-", "").replace(":", "").replace("T", "-")
    return f"{_UNSAFE.sub('-', title)[:40].strip('-.') or 'bench'}-{when}-{os.urandom(2).hex()}"


def save(document: Mapping[str, Any], folder: str, name: str = "") -> str:
    """Returns its path. Atomic; an existing file is replaced only if it was named."""
    path = os.path.join(folder, name or f"{document['id']}.json")
    try:
        make_private_folder(os.path.dirname(os.path.abspath(path)))
        write_atomically(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    except OSError as error:
        raise BenchmarkError(f"{path}: the result could not be written: {error.strerror}") from error
    return path


def load_file(path: str) -> Document:
    try:
        with open(path, "rb") as file:
            document = decode_json(file.read())
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BenchmarkError(f"{path}: not the result of a benchmark: {error}") from error
    wrong = _problem_of(document)
    if wrong:
        raise BenchmarkError(f"{path}: not the result of a benchmark: {wrong}")
    return dict(document)


def load_all(folder: str) -> tuple[list[Document], list[str]]:
    """Returns (oldest first, files that could not be read)."""
    found, problems = [], []
    for name in _names(folder):
        try:
            found.append(load_file(os.path.join(folder, name)))
        except BenchmarkError as error:
            problems.append(str(error))
    return sorted(found, key=lambda document: (document["created_time"], document["id"])), problems


def find(folder: str, text: str) -> Document:
    """Finds by path, by id or a unique part of it; 'latest' is the newest."""
    if text.endswith(".json") and os.path.exists(text):
        return load_file(text)
    names = [name.removesuffix(".json") for name in _names(folder)]
    if text == LATEST:
        documents, problems = load_all(folder)
        if documents:
            return documents[-1]
        raise BenchmarkError(problems[0] if problems else f"no results in {folder}")
    matching = [text] if text in names else [name for name in names if text in name]
    if len(matching) == 1:
        return load_file(os.path.join(folder, f"{matching[0]}.json"))
    if matching:
        raise BenchmarkError(f"'{text}' is ambiguous: {listed(matching, 3)}", hint="give more characters")
    raise BenchmarkError(
        f"there is no result '{text}' in {folder}", hint="joblens bench list shows all results"
    )


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BenchmarkError(f"{folder}: cannot be read: {error.strerror}") from error


def _problem_of(document: Any) -> str:
    if not isinstance(document, dict) or "kind" not in document:
        return "it has no 'kind'"
    if document.get("format", 0) > FORMAT:
        return f"format {document['format']} is from a newer joblens"
    needed = _NEEDED.get(document["kind"])
    if needed is None:
        return f"kind '{document['kind']}' is unknown"
    lacking = [key for key in ("id", "created_time", "system_info", *needed) if key not in document]
    return f"{', '.join(lacking)} missing" if lacking else ""
