"""The native protocol, described for programs: an OpenAPI document."""

from typing import Any

import msgspec

import tsucb
from tsucb.service import native
from tsucb.service.keys import GRANTS
from tsucb.service.native import Native
from tsucb.service.settings import LoopSettings

# What each operation takes; the others take nothing.
BODIES: dict[str, Any] = {
    "decide": native.Question,
    "reward": native.RewardGiven,
    "activate": native.DecisionId,
    "estimates": native.EstimateQuestion,
    "configure": LoopSettings,
    "change_arms": native.ArmChanges,
    "forget": native.ForgetRequest,
    "rotate": native.Rotation,
    "evaluate": native.Rivals,
}
ANSWERS = {
    "decide": native.DecisionAnswer,
    "configuration": LoopSettings,
    "configure": LoopSettings,
}
RELEARN = {"name": "relearn", "in": "query", "schema": {"type": "boolean", "default": True}}
QUERIES: dict[str, list[dict[str, Any]]] = {"configure": [RELEARN]}
OTHER_STATUS = {"reset": "204", "delete": "204", "rotate": "201"}
SERVER = "server"  # the key that operations on the whole server take


def document(protocol: Native) -> dict[str, Any]:
    """Return the OpenAPI document."""
    types = list({*BODIES.values(), *ANSWERS.values(), native.NewLoop, native.ServerKey})
    types.sort(key=lambda cls: cls.__name__)
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {
        "/v1/loops": {
            "get": operation("List the loops.", SERVER, None, None),
            "post": operation("Create a loop.", SERVER, native.NewLoop, None, "201"),
        },
        "/v1/keys": {
            "post": operation("Issue a key of the server.", SERVER, native.ServerKey, None, "201")
        },
        "/v1/audit": {"get": operation("Show the last administrative calls.", SERVER, None, None)},
    }
    for (method, word), (action, function) in protocol.operations.items():
        name = function.__name__
        path = "/v1/loops/{loop}" + (f"/{word}" if word else "")
        places = ["loop"]
        if word == "decisions":
            path, places = path + "/{id}", ["loop", "id"]
        line = (function.__doc__ or "").strip().partition("\n")[0]
        found = operation(
            line, action, BODIES.get(name), ANSWERS.get(name), OTHER_STATUS.get(name, "200")
        )
        found["parameters"] = [
            {"name": p, "in": "path", "required": True, "schema": {"type": "string"}}
            for p in places
        ]
        found["parameters"] += QUERIES.get(name, [])
        found["operationId"] = name
        paths.setdefault(path, {})[method.lower()] = found
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


def operation(
    line: str, action: str, body: Any, answer: Any, status: str = "200"
) -> dict[str, Any]:
    """Return the description of one operation."""
    roles = [role for role, granted in GRANTS.items() if action in granted]
    found: dict[str, Any] = {"summary": line, "x-key": ", ".join(roles) or action}
    if body is not None:
        found["requestBody"] = {"required": True, "content": content(body)}
    done: dict[str, Any] = {"description": "Done."}
    if answer is not None:
        done["content"] = content(answer)
    found["responses"] = {
        status: done,
        "400": {"description": "What was wrong, in a sentence."},
        "401": {"description": "No key, or a wrong one."},
        "403": {"description": "The key is for something else."},
        "413": {"description": "The request, or what it would make of the model, is too large."},
        "429": {"description": "Past capacity; Retry-After says when to try again."},
    }
    return found


def content(cls: Any) -> dict[str, Any]:
    """Return the description of a body of a type."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{cls.__name__}"}}}
