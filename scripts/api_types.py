"""Prints the types of the API's values as TypeScript, from its OpenAPI document: `Api.Record` and so on."""

import sys
from collections.abc import Mapping
from typing import Any

from joblens.web.application import all_endpoints
from joblens.web.openapi import openapi_document
from joblens.web.stream_api import STREAMS


def main() -> None:
    document = openapi_document(all_endpoints(), STREAMS, "")
    lines = ["declare namespace Api {"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines.append(f"  type {name.replace('.', '_')} = {type_of(schema)};")
    sys.stdout.write("\n".join([*lines, "}", ""]))


def type_of(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2].replace(".", "_")
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(map(type_of, schema[key])))
    if "enum" in schema:
        return " | ".join(repr(each).replace("'", '"') for each in schema["enum"])
    if "const" in schema:
        return repr(schema["const"]).replace("'", '"')
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("prefixItems") or schema.get("items") or {}
        one = " | ".join(map(type_of, items)) if isinstance(items, list) else type_of(items)
        return f"({one})[]"
    if kind == "object":
        return _object(schema)
    plain = {
        "integer": "number",
        "number": "number",
        "string": "string",
        "boolean": "boolean",
        "null": "null",
    }
    return plain.get(str(kind), "any")


def _object(schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"{{ [name: string]: {type_of(values) if isinstance(values, dict) else 'any'} }}"
    required = set(schema.get("required", ()))
    fields = [
        f'"{name}": {type_of(each)}' if name in required else f'"{name}"?: {type_of(each)} | undefined'
        for name, each in schema["properties"].items()
    ]
    return "{ " + "; ".join(fields) + " }"


if __name__ == "__main__":
    main()
