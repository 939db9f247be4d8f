"""OpenAPI 3.1 document, generated from the table of endpoints and the msgspec types."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

import joblens
from joblens.model.access import Role
from joblens.web.endpoints import API, LONGEST_OF_PATH, Endpoint
from joblens.web.problems import PROBLEM_TYPE, Problem

_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"{(\w+)}")
_MEANINGS = {
    "job": "UUID, unique prefix of it, own id, or number.",
    "run": "UUID, unique prefix of it, WORKFLOW.N, or a workflow's name or number: its newest run.",
    "workflow": "Number, UUID, unique prefix of it, or name.",
    "stream": "stdout or stderr.",
    "token": "Id, or unique prefix of it.",
    "snapshot": "Job id of a recipe's job.",
}
_PATTERNS = {"stream": "^(stdout|stderr)$"}


class StreamEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that does not answer with JSON; routed by its own module."""

    path: str
    name: str
    summary: str
    media_type: str
    query: type[msgspec.Struct]
    section: str = "streams"
    headers: dict[str, str] = {}
    statuses: tuple[int, ...] = (200,)


def openapi_document(
    endpoints: Sequence[Endpoint], streams: Sequence[StreamEndpoint], base_path: str
) -> dict[str, Any]:
    types = [each.returns for each in endpoints] + [each.body for each in endpoints if each.body] + [Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    returns = schemas[: len(endpoints)]
    bodies = iter(schemas[len(endpoints) : -1])
    problem = schemas[-1]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint, schema in zip(endpoints, returns, strict=True):
        body = next(bodies) if endpoint.body else None
        operation = _operation(endpoint, schema, body, problem)
        paths.setdefault(API + endpoint.path, {})[endpoint.method.lower()] = operation
    for stream in streams:
        paths.setdefault(API + stream.path, {})["get"] = _stream_operation(stream, problem)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "joblens",
            "version": joblens.__version__,
            "description": "Jobs, runs, samples, logs and findings of one joblens store.",
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, schema: Any, body: Any, problem: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.section],
        "parameters": _parameters(endpoint.path, endpoint.query, endpoint.headers),
        "responses": {
            **{
                str(status): {
                    "description": "Done.",
                    "content": {"application/json": {"schema": schema}},
                }
                for status in (endpoint.status, *endpoint.also)
            },
            **_problems(problem),
        },
    }
    if endpoint.method == "GET":
        operation["responses"]["304"] = {"description": "Not changed since the ETag in If-None-Match."}
    if endpoint.role is not Role.READER:
        operation["description"] = f"Needs the role {endpoint.role}."
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _stream_operation(stream: StreamEndpoint, problem: Any) -> dict[str, Any]:
    content = {stream.media_type: {"schema": {"type": "string"}}}
    return {
        "operationId": stream.name,
        "summary": stream.summary,
        "tags": [stream.section],
        "parameters": _parameters(stream.path, stream.query, stream.headers),
        "responses": {
            **{str(status): {"description": "Done.", "content": content} for status in stream.statuses},
            **_problems(problem),
        },
    }


def _problems(problem: Any) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": problem}}
    return {
        "4XX": {"description": "Refused; the problem says why and what to do.", "content": content},
        "5XX": {"description": "The server or its store failed.", "content": content},
    }


def _parameters(path: str, query: type[msgspec.Struct], headers: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _MEANINGS.get(name, ""),
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_OF_PATH,
                "pattern": _PATTERNS.get(name, r"^[^\x00-\x1f\x7f/]+$"),
            },
        }
        for name in _PATH_PARAMETER.findall(path)
    ]
    found += [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": _query_schema(field.type),
        }
        for field in msgspec.structs.fields(query)
    ]
    found += [
        {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in headers.items()
    ]
    return found


def _query_schema(kind: Any) -> dict[str, Any]:
    """Returns the schema of query parameters, which are absent instead of null."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return _without_null(_inlined(schema, components))


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(components[schema["$ref"].rpartition("/")[2]], components)
    return {key: _inlined(value, components) for key, value in schema.items()}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = schema.get("anyOf")
    if not options:
        return schema
    types = [each for each in options if each.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**rest, **types[0]} if len(types) == 1 else {**rest, "anyOf": types}
