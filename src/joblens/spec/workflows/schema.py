"""JSON Schema (draft 2020-12) of workflow files, for editors: made from the same tables as the reader.

Only the reader checks what a schema cannot express: whether a regular expression compiles, JSON inside text,
and references between names.
"""

from typing import Any

from joblens.model.values.units import LEAST_MEMORY
from joblens.spec.keys.kinds import (
    ENV_NAME_PATTERN,
    LABEL_PATTERN,
    LONG_NAME_PATTERN,
    NAME_PATTERN,
    OPTION_WORD_PATTERN,
    PLACEHOLDER_NAME_PATTERN,
    SIGNAL_PATTERN,
    SLURM_MEMORY_PATTERN,
    WALLTIME_PATTERN,
    Kind,
)
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.keys.workflow_run import DECIDED_ELSEWHERE, SBATCH_OPTIONS

Schema = dict[str, Any]

# A variable may be a part of every text; the schema does not know their names.
_VARIABLE = r"|\{[A-Za-z_][A-Za-z0-9_-]*\}"
_SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*[kKmMgGtTpP]?([iI]?[bB])?\s*$" + _VARIABLE
_NUMBER = r"\d+(\.\d+)?"
_DURATION_PATTERN = (
    rf"^\s*({_NUMBER}([eE][-+]?\d+)?|({_NUMBER}\s*([uUmM]?[sS]|[dDhHmM])\s*)+"
    rf"|[pP]({_NUMBER}[dD])?([tT]({_NUMBER}[hH])?({_NUMBER}[mM])?({_NUMBER}[sS])?)?)\s*${_VARIABLE}"
)
_SCALAR = ["string", "number", "boolean"]
_NAME: Schema = {"type": ["string", "number"], "pattern": LONG_NAME_PATTERN}
_LINE: Schema = {"type": "string", "pattern": r"\S"}
_WORD: Schema = {"type": _SCALAR, "pattern": r"\S"}
_DURATION: list[Schema] = [{"type": "number"}, {"type": "string", "pattern": _DURATION_PATTERN}]

_KIND_SCHEMAS: dict[Kind, Schema] = {
    Kind.TEXT: {"type": _SCALAR},
    Kind.NAME: {"type": ["string", "number"], "pattern": NAME_PATTERN},
    Kind.LONG_NAME: _NAME,
    Kind.REQUIREMENTS_NAME: {**_NAME, "not": {"const": "default"}},
    Kind.REFERENCE: _NAME,
    Kind.NAMES: {"type": "array", "items": _NAME},
    Kind.REGEXES: {"type": "array", "items": {"type": "string", "format": "regex"}},
    Kind.COMMAND: _LINE,
    Kind.COMMANDS: {"type": "array", "items": _LINE},
    Kind.PATH: _LINE,
    Kind.BOOL: {"type": "boolean"},
    Kind.WHEN_BLOCKED_FAILS: {"type": "boolean"},
    Kind.INT: {"type": "integer"},
    Kind.NUMBER: {"type": "number"},
    Kind.SIZE: {
        "anyOf": [{"type": "integer", "minimum": LEAST_MEMORY}, {"type": "string", "pattern": _SIZE_PATTERN}]
    },
    Kind.DURATION: {"anyOf": _DURATION},
    Kind.STAGGER: {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": 0}, _DURATION[1]]},
    Kind.EXIT_CODES: {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 255}},
    Kind.ENV: {
        "type": "object",
        "propertyNames": {"pattern": ENV_NAME_PATTERN},
        "additionalProperties": {"type": _SCALAR},
    },
    Kind.VARIABLES: {
        "type": "object",
        "propertyNames": {"pattern": PLACEHOLDER_NAME_PATTERN},
        "additionalProperties": {"type": _SCALAR},
    },
    Kind.PARAMETERS: {
        "type": "object",
        "propertyNames": {"pattern": PLACEHOLDER_NAME_PATTERN},
        "additionalProperties": {
            "anyOf": [{"type": _SCALAR}, {"type": "array", "items": {"type": _SCALAR}, "minItems": 1}]
        },
    },
    Kind.WORDS: {"anyOf": [_WORD, {"type": "array", "items": _WORD}]},
    Kind.JSON: {},
    Kind.METADATA: {"type": ["object", "string"]},
    Kind.OPTION_WORD: {"type": _SCALAR, "pattern": OPTION_WORD_PATTERN},
    Kind.LABEL: {"type": _SCALAR, "pattern": LABEL_PATTERN},
    Kind.SIGNAL: {"type": "string", "pattern": SIGNAL_PATTERN},
    Kind.WALLTIME: {"type": ["string", "integer"], "pattern": WALLTIME_PATTERN + _VARIABLE, "minimum": 0},
    Kind.SLURM_MEMORY: {
        "type": ["string", "integer"],
        "pattern": SLURM_MEMORY_PATTERN + _VARIABLE,
        "minimum": 0,
    },
}


def workflow_schema() -> Schema:
    definitions = {name: _section_schema(section) for name, section in SECTIONS.items() if name != "workflow"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:joblens:workflow",
        "title": "joblens workflow",
        "description": "Jobs, their dependencies and requirements.",
        **_section_schema(SECTIONS["workflow"]),
        "$defs": definitions,
    }


def _section_schema(section: Section) -> Schema:
    keys = section.keys.values()
    schema: Schema = {
        "type": "object",
        "properties": {key.name: _key_schema(key) for key in keys},
        "additionalProperties": section.warns_of_unknown,
    }
    if section.free_prefix:
        schema["patternProperties"] = {f"^{section.free_prefix}": {}}
    required = [key.name for key in keys if key.is_required]
    if required:
        schema["required"] = required
    conditions = [*_conditions(section), *_clashes(section)]
    if conditions:
        schema["allOf"] = conditions
    return schema


def _key_schema(key: Key) -> Schema:
    schema: Schema = {"description": key.meaning, **_value_schema(key)}
    if key.default is not None:
        schema["default"] = key.default
    if key.example is not None:
        schema["examples"] = [key.example]
    if key.older_name_of:
        schema["deprecated"] = True
    return schema if key.is_required else _or_null(schema)


def _value_schema(key: Key) -> Schema:
    match key.kind:
        case Kind.SECTION:
            return {"$ref": f"#/$defs/{key.section}"}
        case Kind.SECTIONS:
            items: Schema = {"type": "array", "items": {"$ref": f"#/$defs/{key.section}"}}
            return {**items, "minItems": 1} if key.is_required else items
        case Kind.REQUIREMENTS:
            return {"anyOf": [{**_NAME, "type": "string"}, {"$ref": f"#/$defs/{key.section}"}]}
        case Kind.CONTAINER:
            return {"anyOf": [_LINE, {"const": False}, {"$ref": f"#/$defs/{key.section}"}]}
        case Kind.CHOICE:
            return {"enum": list(key.choices)}
        case Kind.SBATCH:
            return _sbatch_schema()
    schema = _KIND_SCHEMAS[key.kind]
    bounds = {"minimum": key.least, "exclusiveMinimum": key.more_than, "maximum": key.most}
    given = {word: bound for word, bound in bounds.items() if bound is not None}
    if "anyOf" in schema and given:
        number, *others = schema["anyOf"]
        return {"anyOf": [{**number, **given}, *others]}
    return {**schema, **given}


def _or_null(schema: Schema) -> Schema:
    """Allows null for optional keys."""
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*kinds, "null"]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "$ref" in schema:
        reference = {"$ref": schema.pop("$ref")}
        return {**schema, "anyOf": [reference, {"type": "null"}]}
    return schema


def _sbatch_schema() -> Schema:
    names = sorted(SBATCH_OPTIONS - DECIDED_ELSEWHERE.keys())
    pattern = "|".join(name.replace("_", "[-_]") for name in names)
    return {
        "type": "object",
        "properties": {name: {"type": [*_SCALAR, "null"]} for name in names},
        "patternProperties": {f"^(--)?({pattern})$": {"type": [*_SCALAR, "null"]}},
        "additionalProperties": False,
    }


def _present(name: str) -> Schema:
    """Requires a key with a value other than null, false and an empty list."""
    return {"required": [name], "properties": {name: {"not": {"enum": [None, False, []]}}}}


def _written(key: Key) -> Schema:
    """Requires a key with a written value, as Key.is_written decides."""
    if key.default is True:
        return {"required": [key.name], "properties": {key.name: {"enum": [False]}}}
    return _present(key.name)


def _conditions(section: Section) -> list[Schema]:
    conditions: list[Schema] = []
    for key in section.keys.values():
        if key.only_with is not None and not key.warns_elsewhere:
            name, values = key.only_with
            other = section.keys[name]
            is_usual = other.default in values
            then: Schema = {"properties": {name: {"enum": [*values, None] if is_usual else list(values)}}}
            if not is_usual:
                then["required"] = [name]
            conditions.append({"if": _written(key), "then": then})
    for need in section.needs:
        when = {"required": [need.key], "properties": {need.key: {"enum": list(need.values)}}}
        conditions.append({"if": when, "then": {"anyOf": [_present(name) for name in need.any_of]}})
    if section.needs_any:
        conditions.append({"anyOf": [_present(name) for name in section.needs_any]})
    return conditions


def _clashes(section: Section) -> list[Schema]:
    clashes: list[Schema] = [
        {"if": _present(name), "then": {"not": {"anyOf": [_present(other) for other in others]}}}
        for name, others in section.excludes
    ]
    older = [(key.name, key.older_name_of) for key in section.keys.values() if key.older_name_of]
    return [*clashes, *({"not": {"allOf": [_present(old), _present(new)]}} for old, new in older)]
