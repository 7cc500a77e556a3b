"""The native protocol, described for programs: an OpenAPI document."""

from typing import Any

import msgspec

import tsucb
from tsucb.service.http import Operation
from tsucb.service.keys import GRANTS
from tsucb.service.native import LONGEST_POLL, MOST_EVENTS, OPERATIONS, RewardGiven
from tsucb.service.settings import LoopSettings

# Bodies that may have other forms too, in the form that most clients use.
USUAL = {"reward": RewardGiven, "configure": LoopSettings}
QUERIES: dict[str, dict[str, Any]] = {  # parameters with their types and defaults
    "configure": {"relearn": {"type": "boolean", "default": True}},
    "events_after": {
        "after": {"type": "integer", "minimum": 0, "default": 0},
        "most": {"type": "integer", "minimum": 1, "maximum": MOST_EVENTS, "default": 1_000},
        "wait": {"type": "integer", "minimum": 0, "maximum": LONGEST_POLL, "default": 0},
    },
}
PROBLEMS = {
    "400": "What was wrong, in a sentence.",
    "401": "No key, or a wrong one.",
    "403": "The key is for something else.",
    "413": "The request, or what it would make of the model, is too large.",
    "429": "Past capacity; Retry-After says when to try again.",
}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    operations = OPERATIONS.all
    types = {cls for each in operations for cls in (body_of(each), each.answer) if cls is not None}
    ordered = sorted(types, key=lambda cls: str(cls.__name__))
    _, schemas = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for each in operations:
        path = paths.setdefault(f"/v1/{'/'.join(each.path)}", {})
        path[each.method.lower()] = described(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tsucb", "version": tsucb.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def body_of(operation: Operation) -> Any:
    """Return the type of the body that an operation takes; None if it takes none."""
    return USUAL.get(operation.function.__name__, operation.body)


def described(operation: Operation) -> dict[str, Any]:
    """Return the description of one operation."""
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
    for parameter, schema in QUERIES.get(name, {}).items():
        found["parameters"].append({"name": parameter, "in": "query", "schema": schema})
    if (body := body_of(operation)) is not None:
        found["requestBody"] = {"required": True, "content": content(body)}
    done: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        done["content"] = content(operation.answer)
    problems = {status: {"description": sentence} for status, sentence in PROBLEMS.items()}
    found["responses"] = {str(operation.status): done, **problems}
    return found


def content(cls: Any) -> dict[str, Any]:
    """Return the description of a body of a type."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{cls.__name__}"}}}
