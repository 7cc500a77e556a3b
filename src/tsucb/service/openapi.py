"""The OpenAPI document of the native protocol, made from the table of its operations."""

import functools
from typing import Any

import msgspec

import tsucb
from tsucb.service.http import Operation
from tsucb.service.keys import ADMINISTER, GRANTS
from tsucb.service.native import OPERATIONS
from tsucb.service.settings import descriptions

PROBLEMS = {
    "400": "What was wrong, in a sentence.",
    "401": "No key, or a wrong one.",
    "403": "The key is for something else.",
    "404": "There is no such loop, or decision.",
    "409": "The loop exists already, or was changed meanwhile; try again.",
    "413": "The request, or what it would make of the model, is too large.",
    "429": "Past capacity; see Retry-After.",
    "503": "The service starts, or its store cannot be reached; see Retry-After.",
}
TEXT = {"type": "string"}
PROBLEM = {"type": "object", "properties": {"code": TEXT, "message": TEXT}}
PROBLEM_CONTENT = {
    "application/json": {"schema": {"type": "object", "properties": {"error": PROBLEM}}}
}
ONCE = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same in a repeat of the request, which then changes nothing more.",
    "schema": TEXT,
}


@functools.cache
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
    header = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tsucb", "version": tsucb.__version__},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {
                status: {"description": sentence, "content": PROBLEM_CONTENT}
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
    if (
        operation.action == ADMINISTER
        and operation.method != "GET"
        and "keys" not in operation.path
    ):
        parameters.append(ONCE)
    done: dict[str, Any] = {"description": "Done."}
    if operation.status != 204:
        done["content"] = content(operation.answer or Any)
    references = {status: {"$ref": f"#/components/responses/{status}"} for status in PROBLEMS}
    found = {
        "operationId": name if places else f"{name}_of_server",
        "summary": (operation.function.__doc__ or "").strip().partition("\n")[0],
        "x-key": ", ".join(roles) if places else "server",
        "parameters": parameters,
        "responses": {str(operation.status): done, **references},
    }
    body = operation.fields if operation.where == "json" else operation.body
    if body is not None:
        found["requestBody"] = {"required": True, "content": content(body)}
    return found
