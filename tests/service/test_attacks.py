"""Hostile requests: no answer is a server error, and the log stays whole."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.conftest import PATIENCE
from tests.service.serving import LOOP, Served, served
from tests.service.test_limits import connected
from tsucb.service.loop import Loop
from tsucb.service.native import OPERATIONS

HUGE = 10**30
ODD = ["", "\0", "a\0b", "x" * 300, "\u202e", "é\n/%2f\\'\"", "🎈" * 60, "__proto__", " "]
NUMBERS = [0, -1, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, HUGE, 1e308, 5e-324, -0.0, True, None, "1"]

# Texts that no JSON encoder writes.
NO_JSON = [
    b'"\xed\xa0\x80"', b'"\\ud800"', b'"\xff"', b"NaN", b"-Infinity", b"1e400", b"[" * 99_999,
    b"1" * 5_000, b'"\\u0000"', b"{}{}", b"\xef\xbb\xbf{}",
]  # fmt: skip
PAGES = [
    "/?q=%00&page=1", f"/?page={HUGE}", "/?page=-1", "/?page=nan", "/login?once=%00",
    f"/loops/{LOOP}?x=1", "/loops/%00", "/openapi.json", "/metrics", "/api",
]  # fmt: skip
QUERIES = [
    "", "&startTime=0001-01-01T00:00:00Z&endTime=9999-12-31T00:00:00Z",
    "&startTime=x&endTime=%00&intervalInMinutes=5", f"&skip={HUGE}&top=-1",
]  # fmt: skip
BROKEN = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),  # TLS
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz\r\n\r\n",
    b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET // HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00/%ff%fe/..%2f..%2fetc HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % HUGE,
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nkey=\xff",
    b"GET / HTTP/1.1\r\nHost: x\r\nCookie: tsucb=; tsucb=\xff; =; a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
]  # fmt: skip


def native_requests() -> Iterator[tuple[str, str, Any]]:
    """Yield methods, paths under the loop, and bodies."""
    for text in ODD:
        yield from (("POST", "decide", {"arms": ["a", "b"], name: text}) for name in (
            "id", "key", "person", "deferred", "exclude", "context", "k"))  # fmt: skip
        yield "POST", "decide", {"arms": [text, "b"]}
        yield "POST", "decide", {"arms": {"a": {text: 1}, "b": None}, "context": {text: text}}
        yield "POST", "reward", {"id": text, "reward": 1}
        yield "POST", "reward", {"id": "known", "reward": 1, "key": text}
        yield "POST", "activate", {"id": text}
        yield "POST", "arms", {"add": [text]}
        yield "POST", "arms", {"remove": [text], "add": text}
        yield "POST", "forget", {"ids": [text], "person": text or None}
        yield "POST", "keys", {"role": text}
        yield "POST", "estimates", {"arms": [text], "context": {text: text}}
        yield "POST", "evaluate", {"agents": {text: {"policy": text}}}
        yield "PATCH", "configuration", {"policy": text}
        yield "PATCH", "configuration", {"note": text, "categories": [text, text]}
    for number in NUMBERS:
        yield "POST", "decide", {"arms": ["a", "b"], "k": number}
        yield "POST", "decide", {"arms": ["a", "b"], "context": {"n": number, "m": [number]}}
        yield "POST", "reward", {"id": "known", "reward": number}
        yield "POST", "reward", [{"id": "known", "reward": 1, "place": number}]
        yield "POST", "keys", {"role": "read", "grace": number}
        yield "POST", "evaluate", {"agents": {"g": {"policy": "Greedy"}}, "most": number}
        yield "POST", "evaluate", {"agents": {"g": {"forgetting": number}}}
        names = ("reward_wait", "default_reward", "most_arms", "most_open", "retention_days",
                 "exploration", "holdout", "forgetting", "reward_range", "mode")  # fmt: skip
        for name in names if number not in (1, True, 5e-324) else ():
            yield "PATCH", "configuration", {name: number}
        yield "GET", f"events?after={number}&most={number}&wait=0", None
    for text in ("nan", "inf", "TS-UCB(nan)", "TS-UCB(1e999)", "TS-UCB(-1)", "TS-UCB(", "Random"):
        yield "PATCH", "configuration", {"policy": text}
        yield "POST", "evaluate", {"agents": {"g": {"policy": text}}}
        yield "GET", f"events?after={text}&after=1&wait=%00", None
    yield "POST", "reward", []
    yield "POST", "reward", [{"id": "known", "reward": 1}, {"id": "none", "reward": 1}, 5]
    yield "POST", "evaluate", {"agents": {}}
    yield "POST", "evaluate", {"agents": {str(n): {} for n in range(1_000)}, "most": 1}
    yield "POST", "evaluate", {"agents": {"g": {"model": "none", "nothing": 1}}}
    yield "POST", "arms", {"add": [str(n) for n in range(20_000)]}
    yield "POST", "forget", {"ids": [str(n) for n in range(5_000)]}
    yield "GET", "decisions/%00", None
    yield "GET", "decisions/%ff%2f..", None
    yield "GET", "decisions/" + "x" * 5_000, None
    yield "DELETE", "decisions/x", None
    yield "PUT", "configuration", {}


def personalizer_requests() -> Iterator[tuple[str, str, Any]]:
    """Yield methods, paths after the version of the protocol, and bodies."""
    span = {"startTime": "0001-01-01T00:00:00+14:00", "endTime": "9999-12-31T23:59:59-14:00"}
    for text in ODD:
        action = {"id": text, "features": [{text: text}]}
        slot = {"id": text, "baselineAction": text, "features": [{text: 1}]}
        yield "POST", "rank", {"eventId": text, "actions": [action, {"id": "b"}]}
        yield "POST", "rank", {"actions": [{"id": "b"}], "excludedActions": [text]}
        yield "POST", "multislot/rank", {"actions": [action], "slots": [slot], "eventId": text}
        yield "POST", "multislot/events/known/reward", {"reward": [{"slotId": text, "value": 1}]}
        yield "POST", "evaluations", {"name": text, **span}
        policies = [{"name": text, "arguments": text}]
        yield "POST", "evaluations", {"name": "e", **span, "policies": policies}
        yield "POST", "evaluations", {"name": "e", "startTime": text, "endTime": text}
        apply = {"evaluationId": text, "policyName": text}
        yield "POST", "configurations/applyFromEvaluation", apply
        yield "PUT", "configurations/policy", {"name": text, "arguments": text}
        yield "PUT", "configurations/service", {"rewardWaitTime": text, "learningMode": text}
    for number in NUMBERS:
        yield "POST", "events/known/reward", {"value": number}
        yield (
            "POST",
            "multislot/events/known/reward",
            {"reward": [{"slotId": "0", "value": number}]},
        )
        yield "POST", "rank", {"actions": [{"id": "b", "features": [{"n": number, "m": [number]}]}]}
        for name in ("rewardWaitTime", "defaultReward", "explorationPercentage",
                     "logRetentionDays", "rewardAggregation", "modelExportFrequency"):  # fmt: skip
            yield "PUT", "configurations/service", {name: number}
        arguments = json.dumps({"forgetting": number if number != 5e-324 else 2})
        yield "PUT", "configurations/policy", {"name": "p", "arguments": arguments}
    for text in ("%00", "%ff", "..%2f", "x" * 2_000, "%F0%9F%8E%88"):
        yield "POST", f"events/{text}/reward", {"value": 1}
        yield "POST", f"events/{text}/activate", None
        yield "GET", f"evaluations/{text}", None
        yield "DELETE", f"evaluations/{text}", None
    for path in ("evaluations", "model/properties", "logs/properties", "configurations/service"):
        yield "GET", path, None
    yield "POST", "logs/interactions", "nothing"
    yield "DELETE", "configurations/policy", None
    yield "DELETE", "logs", None
    yield "DELETE", "model", None


def forms() -> Iterator[tuple[str, str]]:
    """Yield paths and bodies of the page's forms."""
    for value in ("nan", "inf", "-1", "%00", "%ff", "x" * 300, "", "%F0%9F%8E%88", str(HUGE)):
        for name in ("reward_wait", "exploration", "default_reward", "retention_days", "categories",
                     "reward_range", "policy", "note", "relearn", "nothing"):  # fmt: skip
            yield f"/loops/{LOOP}/settings", f"{name}={value}"
        yield f"/loops/{LOOP}/keys", f"role=read&grace={value}"
        yield f"/loops/{LOOP}/keys", f"role={value}"
        yield f"/loops/{LOOP}/arms", f"add={value}"
        yield f"/loops/{LOOP}/arms", f"remove={value}"
        yield f"/loops/{LOOP}/evaluate", f"policy={value}&forgetting={value}"
        yield f"/loops/{LOOP}/evaluate", f"policy=Greedy&forgetting={value}"
        yield f"/loops/{LOOP}/forget", f"ids={value}&person={value}"
        yield f"/loops/{LOOP}/reset", f"confirm={value}"
        yield "/loops", f"name={value}&arms={value}"
        yield "/login", f"key={value}"


def status_of(connection: socket.socket) -> int:
    """Return the status of an answer; 0 if the connection was closed instead."""
    data = b""
    while b"\r\n" not in data:
        if not (received := connection.recv(10_000)):
            return 0
        data += received
    return int(data.split(b" ", 2)[1])


@pytest.fixture(params=["sqlite", "postgres"])
def drinks(request, tmp_path, clock) -> Iterator[Served]:
    store = None
    if request.param == "postgres":
        from tsucb.service.postgres import PostgresStore

        store = PostgresStore(request.getfixturevalue("schema"))
    with served(tmp_path / "data", clock, store=store, reward_wait=600.0) as found:
        yield found


def test_nothing_that_is_sent_breaks_anything(drinks, clock, caplog):
    caplog.set_level(logging.INFO)
    wrong = []
    server, mine = drinks.server_key, drinks.keys["administer"]

    def sent(raw: bytes, may_close: bool = False) -> int:
        """Send bytes on a connection of their own; return the status of the answer, or 0."""
        with connected(drinks) as connection:
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR) if may_close else None
                status = status_of(connection)
            except OSError as error:
                status = 0
                if isinstance(error, TimeoutError):
                    wrong.append((raw[:300], repr(error)))
            if status >= 500 or not (status or may_close):
                wrong.append((raw[:300], status))
            return status

    def request(method: str, path: str, body: bytes, key: str = mine, kind: str = "") -> int:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{kind}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return sent(head.encode() + body)

    base = f"/v1/loops/{LOOP}"
    assert request("POST", f"{base}/decide", b'{"arms": ["a", "b"], "id": "known"}') == 200
    for raw in BROKEN:
        sent(raw, may_close=True)
    for method, path, body in native_requests():
        for text in sorted({json.dumps(body, ensure_ascii=ascii) for ascii in (True, False)}):
            request(method, f"{base}/{path}", b"" if body is None else text.encode())
    for method, path, body in personalizer_requests():
        text = b"" if body is None else json.dumps(body).encode()
        request(method, f"/personalizer/v1.1-preview.3/{path}", text)
    for data in (b"tsucb ", b"tsucb 8\n" + bytes(1_000), b"tsucb " + b"\xff" * 99, b"VW"):
        request("PUT", "/personalizer/v1.1-preview.3/model", data)
    for id in ("e", "%00", "%ff%2f"):  # with times that only the newest generation knows
        for query in QUERIES:
            path = f"/personalizer/evaluations/{id}?api-version=2022-09-01-preview{query}"
            times = b'{"name": "e", "startTime": "1900-01-01", "endTime": "9999-12-31T23:00:00Z"}'
            request("PUT", path, times)
            request("GET", path, b"")
            request("GET", path.replace(f"/{id}", ""), b"")
    for text in NO_JSON:
        for body in (b'{"arms": ["a"], "id": %s}', b'{"arms": ["a"], "context": {"a": %s}}',
                     b'{"arms": ["a"], "context": {%s: 1}}', b'{"arms": [%s]}', b"%s"):  # fmt: skip
            request("POST", f"{base}/decide", body % text)
        for body in (b'{"id": %s, "reward": 1}', b'{"id": "known", "reward": %s}', b"%s"):
            request("POST", f"{base}/reward", body % text)
        request("PATCH", f"{base}/configuration", b'{"default_reward": %s}' % text)
        request("POST", "/personalizer/v1.0/rank", b'{"eventId": %s, "actions": []}' % text)
        request(
            "POST", "/personalizer/v1.0/rank", b'{"actions": [{"id": %s, "features": []}]}' % text
        )
    for key in ("\u00e9", "x" * 300, "a\tb", "%00"):
        request("POST", f"{base}/arms", b'{"add": ["w"]}', kind=f"Idempotency-Key: {key}\r\n")
    for path, form in forms():
        request("POST", path, form.encode(), server)
    for path in PAGES:
        request("GET", path, b"", server)
    serious = [vars(r).get("trace", r.msg) for r in caplog.records if r.levelno >= logging.ERROR]
    assert not wrong + serious, "\n".join(map(str, wrong + serious))

    async def state() -> tuple[str, str]:
        loop = drinks.service.loop(LOOP)
        while drinks.service.turns.working:
            await asyncio.gather(*drinks.service.turns.working)
        found = await asyncio.to_thread(
            drinks.service.replayed, Loop(loop.name, loop.number), snapshots=False
        )
        return found.digest(), loop.digest()

    made = asyncio.run_coroutine_threadsafe(state(), drinks.event_loop).result(PATIENCE)
    assert made[0] == made[1]
    assert not list(drinks.service.store.damage())
    assert not drinks.service.store.set_aside()
    assert request("POST", f"{base}/decide", b'{"arms": ["a", "b"]}') == 200


def test_keys_of_others_and_keys_that_are_over_open_nothing(drinks, clock):
    """Every operation is refused with another loop's key, an expired key, and no key."""

    async def prepare() -> dict[str, str]:
        other = await drinks.service.create("other", drinks.loop.settings)
        old = await drinks.service.issue_key(drinks.loop, "administer", "test")
        await drinks.service.issue_key(drinks.loop, "administer", "test", grace=1.0)
        read = await drinks.service.issue_key(drinks.loop, "read", "test")
        choose = await drinks.service.issue_key(drinks.loop, "choose", "test")
        return {"other": other["administer"], "old": old, "read": read, "choose": choose,
                "decide": drinks.keys["decide"]}  # fmt: skip

    keys = asyncio.run_coroutine_threadsafe(prepare(), drinks.event_loop).result(PATIENCE)
    clock.pass_by(2)
    position = drinks.service.store.last()
    may = {"read": {"read", "look"}, "choose": {"choose", "look"},
           "decide": {"choose", "decide", "look"}}  # fmt: skip
    tried = 0
    for operation in OPERATIONS.all:
        path = "/v1/" + "/".join(operation.path).format(loop=LOOP, id="x")
        for name, key in {**keys, "none": "", "odd": "\u00ff", "long": "x" * 10_000}.items():
            if operation.action in may.get(name, ()) and "{loop}" in operation.path:
                continue
            head = f"{operation.method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
            with connected(drinks) as connection:
                connection.sendall(f"{head}Authorization: Bearer {key}\r\n\r\n{{}}".encode())
                status = status_of(connection)
            assert status == (403 if name in ("other", *may) else 401), (path, name)
            tried += 1
    assert tried > 100
    assert drinks.service.store.last() == position
