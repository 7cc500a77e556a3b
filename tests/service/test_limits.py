"""What the service does at its limits: overload, many connections, slow loops, large models."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import LOOP, Served, served
from tsucb.service.application import Application, Options
from tsucb.service.client import Client, ServiceError
from tsucb.service.loop import TAKEN, Loop
from tsucb.service.personalizer import evaluations
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings
from tsucb.service.sqlite import SqliteStore


@pytest.fixture
def drinks(tmp_path: Path, clock: Clock):
    with served(tmp_path / "data", clock, reward_wait=600.0) as found:
        yield found


def client_of(drinks: Served, role: str = "decide", **more) -> Client:
    client = Client(drinks.url, loop=LOOP, key=drinks.keys[role], timeout=PATIENCE, **more)
    drinks.clients.append(client)
    return client


def raw_request(drinks: Served, path: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {drinks.keys['decide']}\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


def connected(drinks: Served) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", int(drinks.url.rpartition(":")[2])), timeout=PATIENCE
    )


def status_of(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(10_000)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(10_000)
    return int(first.split()[1]), headers, body


def test_past_capacity_decisions_are_refused_first_and_rewards_last(tmp_path, clock):
    with served(tmp_path / "data", clock, options=Options(most_requests=10)) as drinks:
        client = client_of(drinks)
        decision = client.decide({"n": 1}, ["tea", "milk"])
        door, decide = drinks.application.door, f"/v1/loops/{LOOP}/decide"
        with connected(drinks) as connection:
            door.requests += 10  # as if these were being answered
            connection.sendall(raw_request(drinks, decide, {}))
            status, headers, body = status_of(connection)
            assert (status, headers["retry-after"]) == (429, "1")
            assert json.loads(body)["error"]["code"] == "TooManyRequests"
            connection.sendall(raw_request(drinks, "/personalizer/v1.0/rank", {}))
            status, headers, _ = status_of(connection)
            assert (status, headers["x-ms-error-code"]) == (429, "toomanyrequests")
            reward = {"id": decision.id, "reward": 1.0}
            connection.sendall(raw_request(drinks, f"/v1/loops/{LOOP}/reward", reward))
            assert status_of(connection)[0] == 200  # the server finishes the requests it has begun
            # In two pieces, so that it has to be parsed: refused all the same.
            whole = raw_request(drinks, decide, {})
            connection.sendall(whole[:40])
            connection.sendall(whole[40:])
            assert status_of(connection)[0] == 429
            assert httpx.get(f"{drinks.url}/readyz", timeout=PATIENCE).status_code == 200
            door.requests += 5  # now rewards, too
            connection.sendall(raw_request(drinks, f"/v1/loops/{LOOP}/reward", reward))
            assert status_of(connection)[0] == 429
            door.requests -= 15
            connection.sendall(raw_request(drinks, decide, {}))
            assert status_of(connection)[0] == 200  # by the same connection
        assert door.refused == 4
        assert door.requests == 0
        assert drinks.loop.counts.decisions == 2


def test_silent_connections_do_not_push_out_those_with_a_key(tmp_path, clock):
    with served(tmp_path / "data", clock, options=Options(most_connections=40)) as drinks:
        client = client_of(drinks, retries=0)
        client.decide({"n": 1}, ["tea", "milk"])  # its connection is kept
        silent = [connected(drinks) for _ in range(100)]
        try:
            for n in range(20):
                client.decide({"n": n})
            with Client(drinks.url, loop=LOOP, key=drinks.keys["decide"], timeout=PATIENCE) as new:
                new.decide({"n": 1})
            gone = 0
            for each in silent[:80]:
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(1) == b""
                gone += 1
            assert gone == 80
            assert drinks.application.door.sent_away >= 80  # at once, not when their time was up
            assert drinks.application.door.connections <= 40
        finally:
            for each in silent:
                each.close()


def test_many_loops_and_many_connections(tmp_path, clock):
    """A first start writes all its loops together, also if fewer writes may wait."""
    wanted = {f"l{n}": {"arms": ["tea", "milk"]} for n in range(60)}
    with served(tmp_path / "data", clock, most_unwritten=50) as found:
        made = found.service.prepare(wanted, lambda keys: None)
        asyncio.run_coroutine_threadsafe(made, found.event_loop).result(PATIENCE)
        assert len(found.service.loops) == 61
        host = found.url.removeprefix("http://").split(":")
        sockets = [socket.create_connection((host[0], int(host[1]))) for _ in range(300)]
        try:
            begun = time.monotonic()
            while found.application.door.connections < 300:  # idle ones are closed later on
                assert time.monotonic() < begun + PATIENCE
                time.sleep(0.01)
            for n, each in enumerate(sockets):
                body = b'{"context": {"n": 1}}'
                head = f"POST /v1/loops/l{n % 60}/decide HTTP/1.1\r\nHost: x\r\n"
                head += f"Authorization: Bearer {found.server_key}\r\n"
                each.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                each.settimeout(PATIENCE)
                assert each.recv(9_999).startswith(b"HTTP/1.1 200"), n
            assert sum(found.service.loop(name).counts.decisions for name in wanted) == 300
        finally:
            for each in sockets:
                each.close()


def test_a_slow_loop_keeps_nobody_else_waiting(drinks, clock, monkeypatch):
    """While one loop folds slowly, another one decides."""
    fast = asyncio.run_coroutine_threadsafe(
        drinks.service.create("fast", LoopSettings(), ["a", "b"]), drinks.event_loop
    ).result(PATIENCE)
    client = client_of(drinks)
    client.decide({"n": 1}, ["tea", "milk"])
    go_on, fold, threads = threading.Event(), Loop.fold, set()

    def slow(self, event, *more):
        if self.name == LOOP:
            threads.add(threading.current_thread().name)
            assert go_on.wait(PATIENCE)
        return fold(self, event, *more)

    monkeypatch.setattr(Loop, "fold", slow)
    drinks.loop.growing = True
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(client.decide({"n": 2})))
    asking.start()
    try:
        with Client(drinks.url, loop="fast", key=fast["decide"], timeout=PATIENCE) as other:
            for n in range(5):
                assert other.reward(other.decide({"n": n}).id, 1.0) == TAKEN
        assert httpx.get(f"{drinks.url}/healthz", timeout=PATIENCE).status_code == 200
        assert not answers
    finally:
        go_on.set()
    asking.join(PATIENCE)
    assert len(answers) == 1
    assert all(name.startswith("loop") for name in threads)
    assert drinks.loop.counts.decisions == 2


def test_folds_of_a_slow_loop_keep_their_order(drinks):
    """Decisions and rewards in threads give the same state as the log does."""
    drinks.loop.growing = True
    with Client(drinks.url, loop=LOOP, key=drinks.keys["administer"], timeout=PATIENCE) as client:
        for n in range(40):
            decision = client.decide({"n": n % 5}, ["tea", "milk"])
            client.reward(decision.id, float(n % 2))
        path = f"{drinks.url}/v1/loops/{LOOP}/state"
        headers = {"authorization": f"Bearer {drinks.keys['administer']}"}
        digest = httpx.get(path, headers=headers, timeout=PATIENCE).json()["digest"]
    assert drinks.service.replayed(drinks.loop, snapshots=False).digest() == digest


def test_a_model_that_would_not_fit_is_refused_before_it_grows(drinks, monkeypatch):
    client = client_of(drinks, retries=0)
    client.decide({"n": 1.0}, ["tea", "milk"])
    before = drinks.loop.digest()
    monkeypatch.setattr("tsucb.service.loop.MOST_NUMBERS", 2 * 100**2)
    with pytest.raises(ServiceError, match="would be too large; use fewer names") as error:
        client.decide({f"x{i}": 1.0 for i in range(300)})
    assert error.value.status == 413
    monkeypatch.setattr("tsucb.service.loop.MOST_NUMBERS", 40)
    with pytest.raises(ServiceError, match="for 52 arms the model would be too large") as error:
        client.decide({"n": 1.0}, [f"arm{i}" for i in range(50)])
    assert error.value.status == 413
    assert drinks.loop.digest() == before
    client.decide({"n": 2.0})  # what does not grow goes on


def test_nothing_is_compiled_once_a_loop_is_there(drinks):
    """For small and large models, and any kind of first request."""
    from numba.core import event

    class Compiled(event.Listener):
        def __init__(self) -> None:
            self.found: list[object] = []

        def on_start(self, seen) -> None:
            self.found.append(seen.data)

        def on_end(self, seen) -> None:
            pass

    client = client_of(drinks)
    with event.install_listener("numba:compile", Compiled()) as listener:
        for width in (1, 10, 60, 150, 260):
            decision = client.decide({f"x{i}": 1.0 for i in range(width)}, ["tea", "milk"])
            client.reward(decision.id, 1.0)
    assert listener.found == []


def test_health_is_answered_before_the_service_is_ready(tmp_path, clock):
    """/readyz is 200 only once the first loop can decide, /healthz at once."""
    store = SqliteStore(tmp_path / "data")
    application = Application(Service(store, clock=clock), Options())

    async def ask(path: str) -> int:
        sent: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "raw_path": path.encode(), "query_string": b"",
            "headers": [], "scheme": "http",
        }  # fmt: skip
        await application(scope, receive, send)
        return int(sent[0]["status"])  # type: ignore[call-overload]

    async def main() -> None:
        go_on, messages = asyncio.Event(), asyncio.Queue()

        async def prepare() -> None:
            await go_on.wait()

        application.prepare = prepare
        living = asyncio.create_task(
            application({"type": "lifespan"}, messages.get, lambda _: asyncio.sleep(0))
        )
        await messages.put({"type": "lifespan.startup"})
        await asyncio.sleep(0.05)
        paths = ("/healthz", "/readyz", "/v1/loops", "/")
        assert [await ask(path) for path in paths] == [200, 503, 503, 503]
        go_on.set()
        while not application.ready:
            await asyncio.sleep(0.01)
        assert [await ask(path) for path in paths] == [200, 200, 401, 401]
        await messages.put({"type": "lifespan.shutdown"})
        await living

    asyncio.run(main())
    store.close()


def test_evaluations_do_not_keep_late_rewards_waiting(drinks, clock):
    client = client_of(drinks)
    late = client.decide({"n": 1}, ["tea", "milk"])
    clock.pass_by(601)
    client.decide({"n": 2})
    go_on = threading.Event()
    for _ in range(20):  # as evaluations would
        drinks.service.turns._background.submit(go_on.wait, PATIENCE)
    try:
        assert client.reward(late.id, 1.0) == "not waiting"
    finally:
        go_on.set()


def test_evaluations_and_relearning_keep_nothing_else_waiting(drinks, monkeypatch):
    """While many run, loops are made and changed, and metrics are read."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def long(*_, **until):
        begun.release()
        go_on.wait(PATIENCE)
        raise ValueError("it was given up")

    async def relearn() -> None:
        for name in ("one", "two", "three"):
            await drinks.service.create(name, LoopSettings(), ["tea"])
            loop = drinks.service.loop(name)
            change = drinks.service.configure(loop, {"model": "BernoulliArms"}, "test")
            drinks.service.turns.begin(change)
            while not loop.next_settings:
                await asyncio.sleep(0.01)

    client_of(drinks).decide({"n": 1}, ["tea", "milk"])
    monkeypatch.setattr("tsucb.service.native.comparison", long)
    monkeypatch.setattr(drinks.service.ledger.replay, "replayed", long)
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    with (
        httpx.Client(timeout=20, base_url=drinks.url, headers=headers) as http,
        ThreadPoolExecutor(4) as others,
    ):
        try:
            url = f"{drinks.url}/v1/loops/{LOOP}/evaluate"
            for _ in range(4):
                others.submit(httpx.post, url, json={"agents": {"a": {}}}, headers=headers,
                              timeout=PATIENCE)  # fmt: skip
            asyncio.run_coroutine_threadsafe(relearn(), drinks.event_loop).result(PATIENCE)
            for _ in range(4):
                assert begun.acquire(timeout=PATIENCE)
            assert http.get("/metrics").status_code == 200
            assert http.post("/v1/loops", json={"name": "news"}).status_code == 201
            changed = http.patch("/v1/loops/news/configuration", json={"note": "as ever"})
            assert changed.status_code == 200
            assert not begun.acquire(blocking=False)
        finally:
            go_on.set()


def test_what_an_evaluation_found_is_worked_out_in_a_thread(drinks, monkeypatch):
    """It has a number for every five minutes, and a client may ask for all of them together."""
    spans = [[300.0 * n, 3, float(n % 7), 1.0] for n in range(200)]
    policies = [{"name": "a", "arguments": "", "source": "Custom", "spans": spans}]
    document = {"id": "e", "status": "Running", "custom": {}, "policies": policies}
    document["server"] = drinks.service.store.name
    body = json.dumps({**document, "startTime": "1970-01-01T00:00:00Z"}).encode()
    threads, series = list[threading.Thread](), evaluations.series

    def watched(*arguments):
        threads.append(threading.current_thread())
        return series(*arguments)

    async def documents(loop, kind):
        running.clear()  # it ends while it is read
        return {"e": body}

    running = drinks.application.protocols["personalizer"].running
    running[LOOP, "e"] = None
    monkeypatch.setattr(evaluations, "series", watched)
    monkeypatch.setattr(drinks.service, "documents", documents)
    query = (
        "api-version=2022-09-01-preview&startTime=1970-01-01T00:00:00Z&endTime=1970-01-02T00:00:00Z"
    )
    headers = {"authorization": f"Bearer {drinks.keys['administer']}"}
    url = f"{drinks.url}/personalizer/evaluations/e?{query}"
    found = httpx.get(url, headers=headers, timeout=PATIENCE).json()
    assert found["status"] == "Running"
    data = found["content"]["value"][0]["timeseries"]["data"]
    assert data[-1]["expectedReward"] == sum(span[2] for span in spans) / 600
    assert [thread.name.partition("_")[0] for thread in threads] == ["asyncio"]


def test_work_on_one_loop_does_not_lock_the_others(drinks):
    async def main() -> None:
        async with drinks.service.ledger.busy[drinks.loop.number]:  # as while it relearns
            await drinks.service.create("other", LoopSettings(), ["a", "b"])
            loop = drinks.service.loop("other")
            decision = await drinks.service.decide(loop, {"n": 1})
            assert await drinks.service.forget(loop, [decision.id]) == 1
            await drinks.service.delete("other", "test")

    asyncio.run_coroutine_threadsafe(main(), drinks.event_loop).result(PATIENCE)


def test_a_batch_of_rewards_is_taken_whole_or_not_at_all(tmp_path, clock, monkeypatch):
    with served(tmp_path / "data", clock, most_unwritten=50) as drinks:
        client = client_of(drinks)
        ids = [client.decide({"n": n}, ["tea", "milk"]).id for n in range(20)]
        url = f"{drinks.url}/v1/loops/{LOOP}/reward"
        headers = {"authorization": f"Bearer {drinks.keys['decide']}"}
        many = [{"id": ids[n % 20], "reward": 1.0} for n in range(51)]
        found = httpx.post(url, json=many, headers=headers, timeout=PATIENCE)
        assert found.status_code == 413
        assert "at most 50 rewards" in found.json()["error"]["message"]
        drinks.service.ledger.unwritten += 40  # of others
        found = httpx.post(url, json=many[:20], headers=headers, timeout=PATIENCE)
        assert found.status_code == 429
        drinks.service.ledger.unwritten -= 40
        assert drinks.loop.counts.rewards == 0
        found = httpx.post(url, json=many[:20], headers=headers, timeout=PATIENCE)
        assert found.json()["results"] == [{"result": TAKEN}] * 20
        assert drinks.loop.counts.rewards == 20


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"context": {"n": 2**63}, "arms": ["x"]}, "beyond 64 bits"),
        ({"context": {"n": [1, -(2**70)]}, "arms": ["x"]}, "beyond 64 bits"),
        ({"arms": {"x": {"n": 10**30}}}, "beyond 64 bits"),
        ({"arms": ["x"], "k": 10**30}, "k`"),
    ],
)
def test_large_integers_are_refused_with_a_sentence(drinks, body, sentence):
    found = httpx.post(
        f"{drinks.url}/v1/loops/{LOOP}/decide", json=body,
        headers={"authorization": f"Bearer {drinks.keys['decide']}"}, timeout=PATIENCE)  # fmt: skip
    assert found.status_code == 400
    assert sentence in found.json()["error"]["message"]
    client = client_of(drinks, "administer")
    with pytest.raises(ServiceError, match="retention_days") as error:
        client.configure(retention_days=10**30)
    assert error.value.status == 400


def test_a_request_without_a_path_is_no_error_of_the_service(drinks):
    with connected(drinks) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(connection)[0] in (400, 401)


def test_ids_and_slots_with_line_breaks_are_told_apart(drinks):
    client = client_of(drinks)
    arms = ["tea", "milk"]
    client.decide({"n": 1}, arms, id="a\n0")
    client.decide({"n": 1}, arms, id="a", k=2)
    assert client.reward("a", 1.0, place=0) == TAKEN
    assert client.reward("a\n0", 1.0) == TAKEN
    assert client.reward("a", 1.0, place=1) == TAKEN
    assert drinks.loop.counts.learned == 3


def test_roles_may_do_what_they_are_for(drinks):
    admin = client_of(drinks, "administer")
    admin.decide({"n": 1}, ["tea", "milk"])
    url, headers = f"{drinks.url}/v1/loops/{LOOP}", {}
    for role in ("choose", "read"):
        headers = {"authorization": f"Bearer {drinks.keys['administer']}"}
        made = httpx.post(f"{url}/keys", json={"role": role}, headers=headers, timeout=PATIENCE)
        drinks.keys[role] = made.json()["key"]
    choose = client_of(drinks, "choose")
    assert choose.reward(choose.decide({"n": 2}).id, 1.0) == TAKEN
    with pytest.raises(ServiceError, match="no arm 'juice', and this key may not add it"):
        choose.decide({"n": 2}, ["tea", "juice"])
    read = {"authorization": f"Bearer {drinks.keys['read']}"}
    for path in ("", "/configuration", "/arms", "/audit", "/state", "/export"):
        assert httpx.get(url + path, headers=read, timeout=PATIENCE).status_code == 200
    for path in ("/decide", "/reward", "/arms", "/reset", "/keys", "/forget"):
        answer = httpx.post(url + path, json={}, headers=read, timeout=PATIENCE)
        assert answer.status_code == 403, path
    assert httpx.delete(url, headers=read, timeout=PATIENCE).status_code == 403
    found = httpx.post(f"{url}/keys", json={"role": "all"}, headers=headers, timeout=PATIENCE)
    assert found.status_code == 400


def test_the_key_of_the_server_is_rotated(drinks, clock):
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    made = httpx.post(
        f"{drinks.url}/v1/keys", json={"grace": 60}, headers=headers, timeout=PATIENCE
    )
    assert made.status_code == 201
    new = {"authorization": f"Bearer {made.json()['key']}"}
    for each, status in ((headers, 200), (new, 200)):
        answer = httpx.get(f"{drinks.url}/v1/audit", headers=each, timeout=PATIENCE)
        assert answer.status_code == status
    assert any(record["action"] == "keys" for record in answer.json()["audit"])
    clock.pass_by(61)
    statuses = [
        httpx.get(f"{drinks.url}/v1/loops", headers=each, timeout=PATIENCE).status_code
        for each in (headers, new)
    ]
    assert statuses == [401, 200]


def test_events_can_be_followed(drinks):
    client = client_of(drinks)
    ids = [client.decide({"n": n}, ["tea", "milk"]).id for n in range(5)]
    client.reward(ids[0], 1.0)
    headers = {"authorization": f"Bearer {drinks.keys['administer']}"}

    def events(**query: object) -> dict:
        url = f"{drinks.url}/v1/loops/{LOOP}/events"
        answer = httpx.get(url, params=query, headers=headers, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.json()

    first = events(most=3)
    rest = events(after=first["next"])
    found = [*first["events"], *rest["events"]]
    kinds = [each["event"]["kind"] for each in found]
    assert kinds == ["configured", "arms", *["decided"] * 5, "rewarded"]
    assert [each["event"]["id"] for each in found if each["event"]["kind"] == "decided"] == ids
    positions = [each["position"] for each in found]
    assert positions == sorted(set(positions))
    assert events(after=rest["next"]) == {"events": [], "next": rest["next"]}
    answers: list[dict] = []
    following = threading.Thread(target=lambda: answers.append(events(after=rest["next"], wait=30)))
    following.start()
    client.reward(ids[1], 1.0)
    following.join(PATIENCE)
    assert [each["event"]["id"] for each in answers[0]["events"]] == [ids[1]]
    wrong = httpx.get(
        f"{drinks.url}/v1/loops/{LOOP}/events?after=x", headers=headers, timeout=PATIENCE
    )
    assert wrong.status_code == 400


def test_the_rules_for_alerts_use_metrics_that_there_are(drinks):
    client = client_of(drinks)
    client.reward(client.decide({"n": 1}, ["tea", "milk"]).id, 1.0)
    drinks.service.alerts["event 1"] = "event 1 is set aside"  # the clock is looked at again
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    text = httpx.get(f"{drinks.url}/metrics", headers=headers, timeout=PATIENCE).text
    rules = (Path(__file__).parents[2] / "deploy" / "alerts.yml").read_text()
    names = set(re.findall(r"tsucb_\w+", rules))
    assert len(names) >= 4
    for name in names:
        assert re.search(rf"^{name}[{{ ]", text, re.MULTILINE), name
