"""The OpenAPI document of the native protocol, made from the table of its operations."""

import functools
import inspect
import json
import re
from typing import Any

import msgspec

import tsucb
from tsucb.service.errors import Conflict, NotFound, Overloaded, StoreError, TooLarge
from tsucb.service.http import Operation
from tsucb.service.keys import ADMINISTER, GRANTS
from tsucb.service.native import OPERATIONS, DecisionAnswer, DecisionRequest, RewardGiven
from tsucb.service.settings import LoopSettings

TEXT = {"type": "string"}
ERROR = {"type": "object", "properties": {"code": TEXT, "message": TEXT}}
PROBLEM = {"schema": {"type": "object", "properties": {"error": ERROR}}}
PROBLEMS = {
    400: "The request is wrong; the message says how.",
    401: "No key, or a wrong one.",
    403: "The key is for something else.",
    **{
        each.status: inspect.getdoc(each)
        for each in (NotFound, Conflict, TooLarge, Overloaded, StoreError)
    },
}
ONCE = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same in a repeat of the request, which then changes nothing more. Keys in "
    "its answer take the place of those in the first.",
    "schema": TEXT,
}
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}


@functools.cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for each in OPERATIONS.all:
        path = paths.setdefault(f"/v1/{'/'.join(each.path)}", {})
        path[each.method.lower()] = describe(each, schemas)
    for cls in (LoopSettings, DecisionRequest, DecisionAnswer, RewardGiven):
        schema, text = schemas[cls.__name__], inspect.getdoc(cls) or ""
        schema["description"] = text.partition("\n")[0]
        for name, lines in re.findall(r"^(\w+) : (.+(?:\n .+)*)", text, re.MULTILINE):
            schema["properties"][name]["description"] = " ".join(lines.split())
    header = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tsucb", "version": tsucb.__version__},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {
                str(status): {"description": sentence, "content": {"application/json": PROBLEM}}
                for status, sentence in PROBLEMS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}, "header": header},
        },
        "security": [{"bearer": []}, {"header": []}],
    }


def describe(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the description of one operation; add the types of its bodies to `schemas`."""

    def content(cls: Any) -> dict[str, Any]:
        if cls is bytes:
            return {"application/vnd.apache.parquet": {}}
        (schema,), named = msgspec.json.schema_components(
            [cls], ref_template="#/components/schemas/{name}"
        )
        schemas.update(named)
        return {"application/json": {"schema": schema}}

    name, places = operation.function.__name__, [p for p in operation.path if p.startswith("{")]
    roles = [role for role, granted in GRANTS.items() if operation.action in granted]
    parameters: list[dict[str, Any]] = [
        {"name": place.strip("{}"), "in": "path", "required": True, "schema": TEXT}
        for place in places
    ]
    if operation.fields is not None and operation.where == "query":
        _, named = msgspec.json.schema_components([operation.fields])
        for parameter, schema in named["Fields"]["properties"].items():
            parameters.append({"name": parameter, "in": "query", "schema": schema})
    if operation.action == ADMINISTER and operation.method != "GET":
        parameters.append(ONCE)
    done: dict[str, Any] = {"description": "Done."}
    if operation.status != 204:
        done["content"] = content(operation.answer or Any)
    problems = {str(each): {"$ref": f"#/components/responses/{each}"} for each in PROBLEMS}
    found = {
        "operationId": name if places else f"{name}_of_server",
        "summary": (operation.function.__doc__ or "").strip().partition("\n")[0],
        "x-key": ", ".join(roles) if places else "server",
        "parameters": parameters,
        "responses": {str(operation.status): done, **problems},
    }
    body = operation.fields if operation.where == "json" else operation.body
    if body is not None:
        found["requestBody"] = {"required": True, "content": content(body)}
    return found


def tables(operation: dict[str, Any]) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Return a heading for, and the fields of, the query, the body and the answer."""
    schemas = document()["components"]["schemas"]
    asked = [each for each in operation["parameters"] if each["in"] == "query"]
    found = []
    if asked:
        query = {"properties": {each["name"]: each["schema"] for each in asked}}
        found.append(("Query", fields(query)))
    answer = next(iter(operation["responses"].values()))
    for heading, part in ("Body", operation.get("requestBody", {})), ("Answer", answer):
        for content in part.get("content", {}).values():
            text = kind(content.get("schema", {}))
            for name in filter(text.__contains__, schemas):
                found.append((f"{heading}: {text}", fields(schemas[name])))
    return found


def fields(schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, type, whether it is required, and meaning of the fields of an object."""
    required = schema.get("required", [])
    return [
        (name, kind(about), "yes" if name in required else "", note(about))
        for name, about in schema.get("properties", {}).items()
    ]


def kind(schema: dict[str, Any]) -> str:
    """Return the type that a schema describes in words.

    >>> kind({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
    'integer, at least 1, or null'
    """
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        kinds = list(dict.fromkeys(kind(each) for each in schema["anyOf"]))
        return (", or " if any("," in each for each in kinds) else " or ").join(kinds)
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {kind(items)}" if items else "list"
    if "enum" in schema:
        return ", ".join(map(json.dumps, schema["enum"]))
    bounds = [(word, schema[name]) for name, word in BOUNDS.items() if name in schema]
    parts = [f"{word} {bound:,.0f}" for word, bound in bounds if abs(bound) < 1e15]
    return ", ".join([schema.get("type", "any"), *parts])


def note(schema: dict[str, Any]) -> str:
    """Return the description and the default of a field."""
    default = schema.get("default")
    shown = f"Default {json.dumps(default)}." if default not in (None, "", [], {}, ()) else ""
    return f"{schema.get('description', '')} {shown}".strip()
