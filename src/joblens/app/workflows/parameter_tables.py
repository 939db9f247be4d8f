"""Parameter tables of a workflow: files of rows (`parameters_file`) and lists (`@file`)."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import DecodeError

from joblens.model.runs.workflow_spec import WorkflowSpec
from joblens.model.values.json_text import decode_json
from joblens.plan.commands.parameters import Variables, names_within, with_variables
from joblens.plan.workflows.problems import Path, Problems
from joblens.plan.workflows.sweeps import variables_of

_JSON_LINES = (".jsonl", ".ndjson")

Found = tuple[Path, str]  # where a file is named, and how


class Unreadable(Exception):
    """A table cannot be used; the message says why."""


def read_tables(
    spec: WorkflowSpec, overrides: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], list[Found]]:
    """Returns every table that the workflow names, by the name as written (with '@'), and problems with
    their positions."""
    tables: dict[str, Any] = {}
    problems: list[Found] = []
    for path, name in _named_files(spec, overrides):
        if name in tables:
            continue
        try:
            text = _read(name.removeprefix("@"), folder)
            tables[name] = _values(name, text) if name.startswith("@") else _rows(name, text)
        except Unreadable as error:
            problems.append((path, str(error)))
            tables[name] = None
    return {name: table for name, table in tables.items() if table is not None}, problems


def _named_files(spec: WorkflowSpec, overrides: Mapping[str, Any]) -> Iterator[Found]:
    """A name with a placeholder is skipped: `plan` reports it."""
    for where, name in _written_names(spec, overrides):
        if not (spec.variables and names_within(name)):
            yield where, name


def _written_names(spec: WorkflowSpec, overrides: Mapping[str, Any]) -> Iterator[Found]:
    if spec.parameters_file:
        yield ("parameters_file",), spec.parameters_file
    variables = variables_of(spec, overrides, Problems())
    sections: dict[str, Iterable[Any]] = {
        "jobs": spec.jobs,
        "files": spec.files,
        "user_data": spec.user_data,
        "datasets": spec.datasets,
    }
    written: list[tuple[Path, Any]] = [
        (("--param",), with_variables(each, Variables(variables), (), lambda _: None))
        for each in overrides.values()
    ]
    written += [(("parameters", name), each) for name, each in spec.parameters.items()]
    for section, entries in sections.items():
        for index, entry in enumerate(entries):
            path: Path = (section, index)
            if entry.parameters_file:
                yield (*path, "parameters_file"), entry.parameters_file
            if entry.parameters:
                written += [((*path, "parameters", name), each) for name, each in entry.parameters.items()]
    for where, value in written:
        if isinstance(value, str):
            text = value.strip()
            if text.startswith("{") and text.endswith("}"):
                text = text[1:-1].strip()
            if text.startswith("@"):
                yield where, text


def _read(name: str, folder: str) -> str:
    """Searches the current directory, then the workflow's folder."""
    tried = [name] if os.path.isabs(name) else [name, os.path.join(folder, name)]
    for path in tried:
        try:
            with open(path, encoding="utf-8-sig", newline="") as file:
                return file.read()
        except FileNotFoundError:
            continue
        except UnicodeDecodeError:
            raise Unreadable(f"{path} is not UTF-8 text") from None
        except OSError as error:
            raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    raise Unreadable(f"there is no file {' nor '.join(dict.fromkeys(tried))}")


def _rows(name: str, text: str) -> list[dict[str, Any]]:
    if name.lower().endswith(".json"):
        rows = _from_json(name, text)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unreadable(f"{name} must be a list of objects, one per row")
        return rows
    if name.lower().endswith(_JSON_LINES):
        return [
            _object(name, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines, strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if not any(header):
            raise Unreadable(f"{name} is empty; its first line must name the columns")
        if len(set(header)) < len(header):
            raise Unreadable(f"{name} has two columns with the same name")
        return [_row(name, reader.line_num, header, cells) for cells in reader if cells]
    except csv.Error as error:
        raise Unreadable(f"{name}:{reader.line_num}: {error}") from None


def _object(name: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = decode_json(line)
    except DecodeError as error:
        raise Unreadable(f"{name}:{number}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise Unreadable(f'{name}:{number}: a row must be an object, as {{"name": value}}')
    return row


def _row(name: str, line: int, header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise Unreadable(f"{name}:{line}: {len(cells)} values for {len(header)} columns")
    return dict(zip(header, cells, strict=True))


def _values(name: str, text: str) -> list[Any]:
    """Parses a JSON list, or one value per line; lines that begin with # are comments."""
    if name.lower().endswith(".json"):
        values = _from_json(name, text)
        if not isinstance(values, list):
            raise Unreadable(f"{name} must be a list of values")
        return values
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _from_json(name: str, text: str) -> Any:
    try:
        return decode_json(text)
    except DecodeError as error:
        raise Unreadable(f"{name} is not JSON: {error}") from None
