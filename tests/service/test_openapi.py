"""The OpenAPI document says what the service does: every operation is called as it describes."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import LOOP, served
from tsucb.service import openapi
from tsucb.service.keys import GRANTS

DOCUMENT = openapi.document()
OPERATIONS = {
    each["operationId"]: (method.upper(), path, each)
    for path, methods in DOCUMENT["paths"].items()
    for method, each in methods.items()
}
# A request for every operation, in an order in which all succeed; ID is that of a decision.
REQUESTS: dict[str, dict[str, Any]] = {
    "create_of_server": {"json": {"name": "news", "settings": {"exploration": 0.2}, "arms": ["a"]}},
    "list_loops_of_server": {},
    "rotate_server_key_of_server": {"json": {"grace": 3_600}},
    "audit_of_server": {},
    "alerts_of_server": {},
    "decide": {"json": {"context": {"n": 1}, "arms": ["tea", "milk"], "k": 1}},
    "reward": {"json": [{"id": "ID", "reward": 1.0, "place": 0}]},
    "activate": {"json": {"id": "ID"}},
    "estimates": {"json": {"context": {"n": 1}, "arms": ["tea"]}},
    "show": {},
    "configuration": {},
    "arms": {},
    "audit": {},
    "alerts": {},
    "explain": {},
    "events_after": {"params": {"after": 0, "most": 5, "wait": 0}},
    "export": {},
    "evaluate": {"json": {"agents": {"greedy": {"policy": "Greedy"}}, "most": 1_000}},
    "state": {},
    "configure": {"json": {"note": "changed", "exploration": 0.3}, "params": {"relearn": "false"}},
    "change_arms": {"json": {"add": ["juice"], "remove": ["milk"]}},
    "forget": {"json": {"ids": ["ID"], "person": "ann"}},
    "rotate": {"json": {"role": "read", "grace": 0}},
    "reset": {},
    "delete": {},
}


@pytest.fixture(scope="module")
def drinks(tmp_path_factory):
    clock = Clock()
    with served(tmp_path_factory.mktemp("openapi") / "data", clock, reward_wait=5.0) as found:
        found.http = httpx.Client(base_url=found.url, timeout=PATIENCE)
        found.clients.append(found.http)
        for role in GRANTS:
            answer = asked(found, found.server_key, "rotate", json={"role": role})
            found.keys[role] = answer.json()["key"]
        found.keys["server"] = found.server_key
        for n in range(30):
            body = {"context": {"n": n}, "arms": ["tea", "milk"]}
            asked(found, found.server_key, "decide", json=body)
            clock.pass_by(3)
        yield found


def asked(drinks: Any, key: str | None, name: str, **request: Any) -> httpx.Response:
    """Return the answer to a request for an operation; ID stands for an open decision."""
    method, path, _ = OPERATIONS[name]
    headers = request.pop("headers", {})
    headers |= {} if key is None else {"authorization": f"Bearer {key}"}
    body = json.dumps(request.pop("json")).encode() if "json" in request else None
    if "ID" in f"{path}{body!r}".replace("{id}", "ID"):
        loop, id = drinks.loop, "the one"
        if id not in loop.open_decisions:
            decide = {"json": {"arms": ["tea", "milk"], "k": 1, "id": id, "person": "ann"}}
            assert asked(drinks, drinks.server_key, "decide", **decide).status_code == 200
        body = body and body.replace(b'"ID"', b'"the one"')
        path = path.replace("{id}", "the%20one")
    url = path.replace("{loop}", LOOP)
    return drinks.http.request(method, url, headers=headers, content=body, **request)


def errors(schema: Any, value: Any) -> list[str]:
    """Return the errors of a value under a schema of the document."""
    whole = {**DOCUMENT, **schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    return [each.message for each in Draft202012Validator(whole).iter_errors(value)]


def body_schema(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]["application/json"]["schema"]


def resolved(schema: Any) -> Any:
    """Return a schema, or the one that it refers to; the last of several."""
    schema = schema["anyOf"][-1] if "anyOf" in schema else schema
    name = schema.get("$ref", "").rpartition("/")[2]
    return DOCUMENT["components"]["schemas"][name] if name else schema


def test_every_operation_has_a_request_here():
    assert set(REQUESTS) == set(OPERATIONS)
    for name, (_, _, operation) in OPERATIONS.items():
        assert ("requestBody" in operation) == ("json" in REQUESTS[name]), name
        queries = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        assert queries == set(REQUESTS[name].get("params", {})), name


def test_every_field_of_large_types_has_a_meaning():
    for name in ("LoopSettings", "DecisionRequest", "DecisionAnswer", "RewardGiven"):
        for field, about in DOCUMENT["components"]["schemas"][name]["properties"].items():
            assert about.get("description"), (name, field)


@pytest.mark.parametrize("name", [name for name in REQUESTS if "json" in REQUESTS[name]])
def test_bodies_are_refused_where_the_schema_refuses_them(drinks, name):
    """Fields that are missing, unknown, of another type or out of bounds: 400 and nothing else."""
    schema, whole = body_schema(OPERATIONS[name][2]), REQUESTS[name]["json"]
    assert errors(schema, whole) == []
    fields = resolved(schema)["properties"]
    body = whole[0] if isinstance(whole, list) else whole
    assert set(body) <= set(fields)
    wrong: list[Any] = [{**body, "colour": 1}, "text", None]
    wrong += [{n: v for n, v in body.items() if n != gone} for gone in resolved(schema)["required"]]
    for field, about in fields.items():
        wrong.append({**body, field: {"not": ["this"]} if field != "settings" else 5})
        for bounded in [about, *about.get("anyOf", [])]:
            if "minimum" in bounded:
                wrong.append({**body, field: bounded["minimum"] - 1})
            if "maximum" in bounded:
                wrong.append({**body, field: bounded["maximum"] + 1})
    refused = [each for each in wrong if errors(schema, each)]
    assert len(refused) > len(fields)
    for each in refused:
        answer = asked(drinks, drinks.server_key, name, json=each)
        assert answer.status_code == 400, (each, answer.text)
        problem = DOCUMENT["components"]["responses"]["400"]["content"]["application/json"]
        assert errors(problem["schema"], answer.json()) == []
        assert answer.json()["error"]["message"]


def test_queries_are_refused_where_the_schema_refuses_them(drinks):
    found = 0
    for name, (_, _, operation) in OPERATIONS.items():
        for each in operation["parameters"]:
            if each["in"] != "query":
                continue
            values = ["many"]
            values += [each["schema"]["minimum"] - 1] if "minimum" in each["schema"] else []
            values += [each["schema"]["maximum"] + 1] if "maximum" in each["schema"] else []
            for value in values:
                request = {**REQUESTS[name], "params": {each["name"]: value}}
                answer = asked(drinks, drinks.server_key, name, **request)
                assert answer.status_code == 400, (name, value)
                found += 1
    assert found >= 8


def test_keys_may_do_what_the_document_says_and_nothing_else(drinks):
    """Others get 403; those that may, something else, as each of these requests is wrong."""
    for name, (_, _, operation) in OPERATIONS.items():
        may = {*operation["x-key"].split(", "), "server"}
        assert asked(drinks, None, name).status_code == 401
        assert operation["responses"].keys() >= {"401", "403"}
        for role in (*GRANTS, "server"):
            if role in may and name in ("reset", "delete"):
                continue  # they need no body, and would be done
            status = asked(drinks, drinks.keys[role], name).status_code
            assert (status == 403) == (role not in may), (name, role, status)


def test_a_repeat_with_an_idempotency_key_changes_nothing(drinks):
    """Both requests are in the audit trail as one."""
    told = []
    for name, (method, _, operation) in OPERATIONS.items():
        once = any(each["name"] == "Idempotency-Key" for each in operation["parameters"])
        assert once == (method != "GET" and operation["x-key"] in ("administer", "server")), name
        # A repeated rotation makes another key, and to delete the loop would end its audit.
        if once and not name.startswith("rotate") and name != "delete":
            told.append(name)
            request = {**REQUESTS[name], "headers": {"Idempotency-Key": name}}
            if name == "create_of_server":
                request["json"] = {"name": "twice"}
            for _ in range(2):
                assert asked(drinks, drinks.server_key, name, **request).is_success, name
    keys = [each.key for each in drinks.service.store.audit(None, 100) if each.key is not None]
    assert sorted(key.rpartition(" ")[2] for key in keys) == sorted(told)


def test_the_table_of_calls_in_the_guide_agrees():
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text()
    table = guide[guide.index("| call | key | does |") :].split("\n\n")[0]
    told = {}
    for row in table.splitlines()[2:]:
        calls, keys, _ = (cell.strip() for cell in row.strip("|").split("|", 2))
        for method, rest in re.findall(r"`(GET|POST|PATCH|DELETE) ?([^`]*)`", calls):
            path = rest.partition("?")[0].replace("ID", "{id}")
            told[method, path] = set(GRANTS) if keys == "any" else {*keys.split(", "), "administer"}
    real = {
        (method, path.removeprefix("/v1/loops/{loop}").strip("/")): set(each["x-key"].split(", "))
        for method, path, each in OPERATIONS.values()
        if path.startswith("/v1/loops/{loop}")
    }
    assert told == real


def test_answers_are_as_described(drinks):
    """Status, type and, where one is declared, schema of the content; the loop is deleted last."""
    for name, request in REQUESTS.items():
        _, _, operation = OPERATIONS[name]
        answer = asked(drinks, drinks.server_key, name, **request)
        status = str(answer.status_code)
        assert status == next(iter(operation["responses"])), (name, answer.text)
        content = operation["responses"][status].get("content", {})
        if not content:
            assert answer.content == b""
            continue
        ((kind, about),) = content.items()
        assert answer.headers["content-type"] == kind
        if "schema" in about:
            assert errors(about["schema"], answer.json()) == [], name
