"""The native protocol, described for programs: an OpenAPI document, made from its types."""

from typing import Any

import msgspec

import tsucb
from tsucb.service.http import Operation
from tsucb.service.keys import GRANTS
from tsucb.service.native import OPERATIONS
from tsucb.service.settings import descriptions

PROBLEMS = {
    "400": "What was wrong, in a sentence.",
    "401": "No key, or a wrong one.",
    "403": "The key is for something else.",
    "413": "The request, or what it would make of the model, is too large.",
    "429": "Past capacity; Retry-After says when to try again.",
}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for each in OPERATIONS.all:
        path = paths.setdefault(f"/v1/{'/'.join(each.path)}", {})
        path[each.method.lower()] = describe(each, schemas)
    settings = schemas["LoopSettings"]
    settings["description"] = "The settings of a loop."
    for name, sentence in descriptions().items():
        settings["properties"][name]["description"] = sentence
    return {
        "openapi": "3.1.0",
        "info": {"title": "tsucb", "version": tsucb.__version__},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def describe(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the description of one operation; add the types of its bodies to `schemas`."""

    def content(cls: Any) -> dict[str, Any]:
        (schema,), named = msgspec.json.schema_components(
            [cls], ref_template="#/components/schemas/{name}"
        )
        schemas.update(named)
        return {"application/json": {"schema": schema}}

    name, places = operation.function.__name__, [p for p in operation.path if p.startswith("{")]
    roles = [role for role, granted in GRANTS.items() if operation.action in granted]
    found: dict[str, Any] = {
        "operationId": name if places else f"{name}_of_server",
        "summary": (operation.function.__doc__ or "").strip().partition("\n")[0],
        "x-key": ", ".join(roles) if places else "server",
        "parameters": [
            {"name": p.strip("{}"), "in": "path", "required": True, "schema": {"type": "string"}}
            for p in places
        ],
    }
    if operation.fields is not None and operation.where == "query":
        _, named = msgspec.json.schema_components([operation.fields])
        for parameter, schema in named["Fields"]["properties"].items():
            found["parameters"].append({"name": parameter, "in": "query", "schema": schema})
    body = operation.fields if operation.where == "json" else operation.body
    if body is not None:
        found["requestBody"] = {"required": True, "content": content(body)}
    done: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        done["content"] = content(operation.answer)
    problems = {status: {"description": sentence} for status, sentence in PROBLEMS.items()}
    found["responses"] = {str(operation.status): done, **problems}
    return found
