"""The service's own protocol over real connections, with the Python clients."""

import asyncio
import contextlib
import io
import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import LOOP, served
from tsucb.service.application import MOST_HEAD, Options
from tsucb.service.client import AsyncClient, Client, ServiceError
from tsucb.service.loop import LATE, TAKEN


@pytest.fixture
def drinks(tmp_path: Path, clock: Clock):
    with served(tmp_path / "data", clock, reward_wait=600.0) as found:
        yield found


@pytest.fixture
def client(drinks):
    with Client(drinks.url, loop=LOOP, key=drinks.keys["administer"], timeout=PATIENCE) as found:
        yield found


def test_decide_and_reward(drinks, client, clock):
    decision = client.decide({"hour": 9, "place": {"city": "Rome"}}, ["tea", "milk"])
    assert decision.arm in ("tea", "milk")
    assert sum(decision.probabilities.values()) == pytest.approx(1)
    assert decision.probability == decision.probabilities[decision.arm]
    assert client.reward(decision.id, 1.0) == TAKEN
    late = client.decide({"hour": 10})
    clock.pass_by(601)
    assert client.reward(late.id, 1.0) == LATE
    found = client.explain(decision.id)
    assert found["context"] == {"hour": 9, "place.city": "Rome"}
    assert [row["arm"] for row in found["picks"][0]["arms"]] == ["tea", "milk"]
    assert found["rewards"][0]["reward"] == 1.0
    assert not found["waiting"]
    assert {row["arm"] for row in client.estimates({"hour": 9})} == {"tea", "milk"}
    assert sum(row["pulls"] for row in client.arms()) == 2


def test_lists_and_features_and_exclusions(client):
    arms = {"tea": {"hot": True}, "milk": {"hot": False}, "juice": None, "water": {}}
    decision = client.decide({"hour": 9}, arms, k=3, exclude=["water"])
    assert decision.arms is not None
    assert sorted(decision.arms) == ["juice", "milk", "tea"]
    assert decision.arm == decision.arms[0]
    assert client.reward(decision.id, 1.0, place=2) == TAKEN
    with pytest.raises(ServiceError, match="needs the name of a slot"):
        client.reward(decision.id, 1.0)


def test_ids_may_be_anything(client):
    for id in ("a/b c", "über/ähm?x=1#y", "%2F", "🍵", "x" * 256):
        decision = client.decide({"n": 1}, ["tea", "milk"], id=id, deferred=True)
        assert decision.id == id
        assert client.activate(id) == TAKEN
        assert client.reward(id, 0.5) == TAKEN
        assert client.explain(id)["id"] == id
    with pytest.raises(ServiceError, match="1 to 256 characters"):
        client.decide({"n": 1}, id="x" * 257)


def test_configuration_arms_and_audit(drinks, client):
    assert client.configuration()["exploration"] == 0.05
    assert client.configure(exploration=0.5, mode="apprentice")["exploration"] == 0.5
    with pytest.raises(ServiceError, match=r"<= 1\.0 - at"):
        client.configure(exploration=2)
    with pytest.raises(ServiceError, match=r"Expected `bool`, got `str` - at `\$\.relearn`"):
        client._send("PATCH", "/configuration?relearn=maybe", {}, dict)
    client.change_arms(add=["tea", "milk"])
    client.change_arms(remove=["tea"])
    assert [row["arm"] for row in client.arms()] == ["milk"]
    audit = client._send("GET", "/audit", None, dict)
    assert [row["action"] for row in audit["audit"]] == ["arms", "arms", "configure", "create"]
    assert drinks.keys["administer"] not in json.dumps(audit)


def test_another_model_learns_from_the_log_or_begins_anew(client):
    for n in range(10):
        decision = client.decide({"n": n}, ["tea", "milk"])
        client.reward(decision.id, n % 2)
    client.configure(model="BernoulliArms")
    assert sum(row["pulls"] for row in client.arms()) == 10
    client.configure(model="AdaptiveLinear", relearn=False)
    assert sum(row["pulls"] for row in client.arms()) == 0


def test_forgetting_and_export(client, clock, tmp_path):
    import pandas as pd

    from tsucb.logs.decision_log import read

    for n in range(20):
        decision = client.decide({"n": n}, ["tea", "milk"], person="ann" if n % 2 else "bob")
        if n % 4:
            client.reward(decision.id, 1.0)
    clock.pass_by(601)
    client.decide({"n": 0})
    data = client.export()
    assert pd.read_parquet(io.BytesIO(data))["kind"].value_counts().to_dict() == {
        "decision": 21, "reward": 20,
    }  # fmt: skip
    (tmp_path / "log.parquet").write_bytes(data)
    table = read(tmp_path / "log.parquet")
    assert table["reward"].sum() == 15
    assert table["expired"].sum() == 5
    assert (table["propensity"] > 0).all()
    assert client.forget(person="ann") == 20
    assert sum(row["pulls"] for row in client.arms()) == 10


def test_evaluation_answers_what_another_configuration_would_have_earned(client, clock):
    client.configure(exploration=0.5)
    random = {"random": {"policy": "Random", "model": "BernoulliArms"}}
    for n in range(120):
        decision = client.decide({"n": n % 3}, ["tea", "milk"])
        client.reward(decision.id, float(decision.arm == "tea"))
        clock.pass_by(1)
    with pytest.raises(ServiceError, match="not enough decisions"):
        client.evaluate(random)
    clock.pass_by(700)
    client.decide({"n": 0})
    found = client.evaluate(random)
    rows = {row["configuration"]: row for row in found["configurations"]}
    assert found["decisions"] == 120
    assert rows["random"]["reward"] < rows["as logged"]["reward"]


def test_evaluation_reads_the_features_of_arms(tmp_path, clock):
    """Every arm comes once: what is good can only be told by its features."""
    settings = {"model": "HybridLinear", "exploration": 1.0, "reward_wait": 60.0}
    with served(tmp_path / "data", clock, **settings) as drinks:
        client = Client(drinks.url, loop=LOOP, key=drinks.keys["administer"], timeout=PATIENCE)
        drinks.clients.append(client)
        for n in range(150):
            arms = {f"{n}{letter}": {"sport": float(letter == "a")} for letter in "abc"}
            decision = client.decide({"fan": 1.0}, arms)
            client.reward(decision.id, float(decision.arm.endswith("a")))
            clock.pass_by(1)
        clock.pass_by(61)
        client.decide({"fan": 1.0}, ["x"])
        found = client.evaluate({"without its floor": {}})
        rows = {row["configuration"]: row["reward"] for row in found["configurations"]}
        assert (found["decisions"], found["method"]) == (150, "doubly robust")
        assert rows["without its floor"] > 0.7 > 0.5 > rows["as logged"]


def test_an_export_is_made_and_sent_in_pieces(drinks, client, clock, monkeypatch):
    import pyarrow.parquet as pq

    for n in range(20):
        arms = {"tea": {"hot": 1}, "milk": {"hot": 0}}
        decision = client.decide({"n": n}, arms)
        client.reward(decision.id, 1.0)
    whole = pq.read_table(io.BytesIO(client.export()))
    monkeypatch.setattr("tsucb.service.export.GROUP", 7)
    monkeypatch.setattr("tsucb.service.application.PIECE", 1_000)
    data = client.export()
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == 6
    assert pq.read_table(io.BytesIO(data)).equals(whole)
    told = json.loads(whole.to_pylist()[0]["context"])
    assert told == {"context": {"n": 0}, "arms": {"tea": {"hot": 1}, "milk": {"hot": 0}}}


def test_many_rewards_at_once(drinks, client):
    ids = [client.decide({"n": n}, ["tea", "milk"]).id for n in range(3)]
    body = [{"id": id, "reward": 1.0} for id in ids] + [{"id": "nobody", "reward": 1.0}]
    found = httpx.post(
        f"{drinks.url}/v1/loops/{LOOP}/reward", json=body,
        headers={"authorization": f"Bearer {drinks.keys['decide']}"}, timeout=PATIENCE,
    ).json()  # fmt: skip
    assert found["results"][:3] == [{"result": TAKEN}] * 3
    assert "no decision 'nobody'" in found["results"][3]["error"]


def test_loops_are_made_listed_and_deleted_with_the_key_of_the_server(drinks):
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url, headers=headers) as http:
        made = http.post("/v1/loops", json={"name": "news", "settings": {"exploration": 0.2}})
        assert made.status_code == 201
        assert http.post("/v1/loops", json={"name": "news"}).status_code == 409
        once = {"Idempotency-Key": "k"}
        both = [http.post("/v1/loops", json={"name": "twice"}, headers=once) for _ in range(2)]
        assert [each.status_code for each in both] == [201, 201]
        first, last = (each.json()["keys"]["decide"] for each in both)
        keys = drinks.service.keys
        assert keys.holder(first, drinks.service.clock()) is None
        assert keys.holder(last, drinks.service.clock()).loop == "twice"
        assert http.delete("/v1/loops/twice", headers=once).status_code == 204
        assert http.post("/v1/loops", json={"name": "twice"}).status_code == 201
        assert http.delete("/v1/loops/twice", headers=once).status_code == 204
        assert "twice" in drinks.service.loops, "the late repeat meant another"
        assert http.delete("/v1/loops/twice").status_code == 204
        assert http.post("/v1/loops", json={"name": "a/b"}).status_code == 400
        names = [loop["name"] for loop in http.get("/v1/loops").json()["loops"]]
        assert names == [LOOP, "news"]
        keys = made.json()["keys"]
        assert http.delete("/v1/loops/news").status_code == 204
        assert http.get("/v1/loops/news").status_code == 404
    with Client(drinks.url, loop="news", key=keys["administer"], timeout=PATIENCE) as gone:
        with pytest.raises(ServiceError) as error:
            gone.decide({"n": 1})
        assert error.value.status == 401


@pytest.mark.parametrize("whose", ["loop", "server"])
def test_a_repeated_rotation_leaves_no_key_whose_answer_was_lost(drinks, clock, whose):
    path = "/v1/keys" if whose == "server" else f"/v1/loops/{LOOP}/keys"
    body = {} if whose == "server" else {"role": "administer"}
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    if whose == "loop":
        headers = {"authorization": f"Bearer {drinks.keys['administer']}"}
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url, headers=headers) as http:

        def rotate(request: str) -> str:
            made = http.post(path, json=body, headers={"Idempotency-Key": request})
            assert made.status_code == 201
            return made.json()["key"]

        def opens(key: str) -> bool:
            url = f"/v1/loops/{LOOP}/audit"
            return http.get(url, headers={"authorization": f"Bearer {key}"}).status_code == 200

        made = [rotate("k") for _ in range(3)]
        assert [opens(key) for key in made] == [False, False, True]
        other = rotate("another")
        assert [opens(made[2]), opens(other)] == [True, True], "as after any rotation"
        again = rotate("k")
        assert [opens(made[2]), opens(other), opens(again)] == [False, True, True]
        old = drinks.server_key if whose == "server" else drinks.keys["administer"]
        assert opens(old)
        clock.pass_by(86_401)
        assert [opens(key) for key in (old, other, again)] == [False, False, True]


def test_keys_open_what_they_are_for_and_nothing_else(drinks, clock):
    def status(key: str | None, method: str, path: str, **more) -> int:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.request(
            method, drinks.url + path, headers=headers, **more, timeout=PATIENCE
        ).status_code

    decide, administer, base = drinks.keys["decide"], drinks.keys["administer"], f"/v1/loops/{LOOP}"
    question = {"json": {"arms": ["tea"]}}
    assert status(decide, "POST", f"{base}/decide", **question) == 200
    assert status(administer, "POST", f"{base}/decide", **question) == 200
    assert status(drinks.server_key, "POST", f"{base}/decide", **question) == 200
    for key in (None, "wrong", decide[:-1]):
        assert status(key, "POST", f"{base}/decide", **question) == 401
    for method, path in [("GET", ""), ("GET", "/configuration"), ("GET", "/export"),
                         ("DELETE", ""), ("GET", "/audit"), ("POST", "/keys")]:  # fmt: skip
        assert status(decide, method, base + path) == 403
        assert status(None, method, base + path) == 401
    assert status(administer, "GET", "/v1/loops") == 403
    assert status(administer, "GET", "/v1/loops/other") == 403
    # Rotation: the old key works until its time is over.
    made = httpx.post(
        f"{drinks.url}{base}/keys", json={"role": "decide", "grace": 60},
        headers={"authorization": f"Bearer {administer}"}, timeout=PATIENCE).json()  # fmt: skip
    assert status(decide, "POST", f"{base}/decide", **question) == 200
    clock.pass_by(61)
    assert status(decide, "POST", f"{base}/decide", **question) == 401
    assert status(made["key"], "POST", f"{base}/decide", **question) == 200
    data = (drinks.service.store.folder / "events.sqlite").read_bytes()
    data += (drinks.service.store.folder / "events.sqlite-wal").read_bytes()
    assert administer.encode() not in data


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[]", 400, "Expected `object`"),
        (b'{"contexts": {}}', 400, "unknown field `contexts`"),
        (b'{"context": {"a": [1, "b"]}, "arms": ["x"]}', 400, "may only hold numbers"),
        (b'{"context": {"a": 1e400}, "arms": ["x"]}', 400, "out of range"),
        (b'{"arms": []}', 400, "offer at least one"),
        (b'{"arms": ["x", "x"]}', 400, "listed twice"),
        (b'{"arms": [""]}', 400, "1 to 256 characters"),
        (b'{"arms": ["x"], "k": 0}', 400, "k`"),
        (b'{"arms": ["x"], "k": 2}', 400, "no arm to choose"),
        (b'{"context": ' + b'{"a":' * 20 + b"1" + b"}" * 20 + b', "arms": ["x"]}', 400, "nested"),
        (b'{"context": ' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}", 400, "nested"),
        (b'{"context": {"a": "' + b"x" * 1_001 + b'"}, "arms": ["x"]}', 400, "longer than"),
        (b'{"context": {"a": "' + b"x" * 1_000_001 + b'"}}', 413, "at most 1,000,000 bytes"),
    ],
)  # fmt: skip
def test_bad_requests_are_answered_with_a_sentence(drinks, body, status, sentence):
    found = httpx.post(
        f"{drinks.url}/v1/loops/{LOOP}/decide", content=body,
        headers={"authorization": f"Bearer {drinks.keys['decide']}"}, timeout=PATIENCE)  # fmt: skip
    assert found.status_code == status
    assert sentence in found.json()["error"]["message"]
    assert not drinks.loop.open_decisions


def test_what_is_not_there(drinks, client):
    headers = {"authorization": f"Bearer {drinks.keys['administer']}"}
    for path in ("/v1", "/v1/nothing", f"/v1/loops/{LOOP}/nothing", f"/v1/loops/{LOOP}/a/b/c"):
        assert httpx.get(drinks.url + path, headers=headers, timeout=PATIENCE).status_code == 404
    assert (
        httpx.get(
            f"{drinks.url}/v1/loops/{LOOP}/decide", headers=headers, timeout=PATIENCE
        ).status_code
        == 405
    )
    for call in (client.activate, client.explain, lambda id: client.reward(id, 1.0)):
        with pytest.raises(ServiceError, match="no decision 'x'") as error:
            call("x")
        assert error.value.status == 404
    decision = client.decide({"n": 1}, ["tea"])
    for reward in ("1", None, True):
        with pytest.raises(ServiceError) as error:
            client.reward(decision.id, reward)  # type: ignore[arg-type]
        assert error.value.status == 400


def test_past_capacity_there_is_429_and_no_queue(tmp_path, clock, monkeypatch):
    with served(tmp_path / "data", clock, options=Options(most_requests=5)) as drinks:
        append, go_on = drinks.service.store.write, threading.Event()
        go_on.set()
        monkeypatch.setattr(
            drinks.service.store, "write", lambda r: (go_on.wait(PATIENCE), append(r))[1]
        )

        async def main() -> list[int]:
            headers = {"authorization": f"Bearer {drinks.keys['decide']}"}
            limits = httpx.Limits(max_connections=200)
            async with httpx.AsyncClient(timeout=PATIENCE, headers=headers, limits=limits) as http:
                url = f"{drinks.url}/v1/loops/{LOOP}/decide"
                first = await http.post(url, json={"arms": ["tea", "milk"]})
                assert first.status_code == 200
                go_on.clear()
                try:  # nothing is written until all that cannot be taken were refused
                    asked = [asyncio.create_task(http.post(url, json={})) for _ in range(40)]
                    while sum(task.done() for task in asked) < 35:
                        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
                finally:
                    go_on.set()
                found = await asyncio.gather(*asked)
            refused = [r for r in found if r.status_code == 429]
            assert all(r.headers["retry-after"] == "1" for r in refused)
            return [r.status_code for r in found]

        statuses = asyncio.run(main())
        assert (statuses.count(200), statuses.count(429)) == (5, 35)
        assert drinks.loop.counts.decisions == statuses.count(200) + 1


def test_who_sends_slowly_or_without_end_takes_nobodys_place(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("tsucb.service.application.READING_SECONDS", 1.0)
    with served(tmp_path / "data", clock, options=Options(most_requests=2)) as drinks:
        address = ("127.0.0.1", int(drinks.url.rpartition(":")[2]))
        begun = b"POST /v1/loops HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        slow = [socket.create_connection(address, PATIENCE) for _ in range(9)]
        try:
            for n, each in enumerate(slow):
                each.sendall((b"", b"GET / HTTP/1.1\r\nX: ", begun)[n % 3])
            with Client(
                drinks.url, loop=LOOP, key=drinks.keys["decide"], timeout=PATIENCE
            ) as client:
                for n in range(20):
                    client.decide({"n": n}, ["tea", "milk"])
            for each in slow:  # they are sent away, and nothing is kept of them
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(100) == b""
        finally:
            for each in slow:
                each.close()
        with socket.create_connection(address, PATIENCE) as endless:
            endless.sendall(b"GET / HTTP/1.1\r\n")
            sent, refused = 0, False
            while not refused and sent < 100 * MOST_HEAD:
                try:
                    endless.sendall(b"X: " + b"a" * 100_000)
                    sent += 100_000
                except ConnectionError:
                    refused = True
            assert refused
        assert drinks.application.door.requests == 0


def test_rates_are_limited_by_key(tmp_path, clock):
    with served(tmp_path / "data", clock, options=Options(rate=3)) as drinks:
        client = Client(
            drinks.url, loop=LOOP, key=drinks.keys["decide"], retries=0, timeout=PATIENCE
        )
        drinks.clients.append(client)
        for _ in range(3):
            client.decide({"n": 1}, ["tea"])
        with pytest.raises(ServiceError) as error:
            client.decide({"n": 1}, ["tea"])
        assert error.value.status == 429
        clock.pass_by(1)
        client.decide({"n": 1}, ["tea"])


def test_the_client_repeats_with_the_same_key(drinks, monkeypatch):
    """The answer to the first try gets lost: the decision counts once all the same."""
    with Client(drinks.url, loop=LOOP, key=drinks.keys["decide"], timeout=PATIENCE) as client:
        request, lost = client._http.request, []

        def losing(*arguments, **more):
            found = request(*arguments, **more)
            if len(lost) < 2:
                lost.append(found.json())
                raise httpx.ReadError("the answer got lost")
            return found

        monkeypatch.setattr(client._http, "request", losing)
        decision = client.decide({"n": 1}, ["tea", "milk"])
        assert [answer["id"] for answer in lost] == [decision.id] * 2
        assert drinks.loop.counts.decisions == 1


def test_the_asynchronous_client(drinks):
    async def main() -> None:
        async with AsyncClient(
            drinks.url, loop=LOOP, key=drinks.keys["administer"], timeout=PATIENCE
        ) as client:
            found = await asyncio.gather(
                *(client.decide({"n": n}, ["tea", "milk"]) for n in range(20))
            )
            assert await client.reward(found[0].id, 1.0) == TAKEN
            deferred = await client.decide({"n": 1}, deferred=True)
            assert await client.activate(deferred.id) == TAKEN
            assert (await client.explain(deferred.id))["deferred"]
            assert len(await client.estimates({"n": 1})) == 2
            await client.change_arms(add=["juice"])
            assert [row["arm"] for row in await client.arms()] == ["tea", "milk", "juice"]
            assert (await client.configure(exploration=0.2))["exploration"] == 0.2
            assert (await client.configuration())["exploration"] == 0.2
            assert await client.forget(ids=[found[0].id]) == 2
            assert (await client.export()).startswith(b"PAR1")
            with pytest.raises(ServiceError, match="not enough decisions"):
                await client.evaluate({"TS": {"policy": "TS"}})

    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(AsyncClient) == public(Client)
    asyncio.run(main())


def test_a_decision_passes_few_modules(tmp_path, clock):
    """22 at most, counted by the functions that run while one request is answered."""
    seen, watching = set[str](), threading.Event()

    def watch(frame: Any, event: str, _: Any) -> None:
        if watching.is_set() and event == "call":
            seen.add(frame.f_globals.get("__name__", ""))

    threading.setprofile(watch)  # of threads that are started from now on
    try:
        with served(tmp_path, clock) as found:
            found.event_loop.call_soon_threadsafe(found.service.upkeep.ticking.cancel)
            with Client(found.url, loop=LOOP, key=found.keys["decide"]) as client:
                for n in range(3):
                    if n == 2:
                        watching.set()
                    client.decide({"hour": 9}, ["tea", "milk"])
                watching.clear()
    finally:
        threading.setprofile(None)
    passed = {name for name in seen if name.startswith("tsucb.")} - {"tsucb.service.client"}
    assert {"tsucb.service.service", "tsucb.agent.learner", "tsucb.service.sqlite"} <= passed
    assert len(passed) <= 22, sorted(passed)
