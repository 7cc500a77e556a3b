"""The page, health, metrics and the OpenAPI document, over real connections."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import LOOP, served
from tsucb.service.client import Client
from tsucb.service.native import OPERATIONS
from tsucb.service.settings import LoopSettings

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def drinks(tmp_path: Path, clock: Clock):
    with served(tmp_path / "data", clock, reward_wait=60.0, exploration=0.3) as found:
        yield found


@pytest.fixture
def browser(drinks):
    """Return a client that has signed in with the server's key."""
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url) as http:
        http.post("/login", data={"key": drinks.server_key})
        yield http


def visit(drinks, clock, count: int) -> None:
    with Client(drinks.url, loop=LOOP, key=drinks.keys["decide"], timeout=PATIENCE) as client:
        for n in range(count):
            decision = client.decide({"n": n % 3, EVIL: EVIL}, ["tea", "milk", EVIL])
            if n % 2:
                client.reward(decision.id, 1.0)
            clock.pass_by(3)


def test_pages_show_what_happens_and_escape_it(drinks, browser, clock):
    empty = browser.get(f"/loops/{LOOP}").text
    assert "Not enough yet to draw" in empty
    visit(drinks, clock, 120)
    page = browser.get(f"/loops/{LOOP}")
    assert page.status_code == 200
    assert EVIL not in page.text
    assert "&lt;script&gt;alert" in page.text
    assert len(re.findall("<svg class=.plot", page.text)) >= 2
    assert "more than random choice" in page.text
    assert re.search(r"α = [\d.−∞-]+", page.text)
    for word in ("f̃", "Ratio", "α", "Chance"):
        assert f"<dt>{word}</dt>" in page.text  # every word is explained
    assert "cannot be compared" in page.text  # means of arms
    assert re.search(r"\d\d:\d\d:\d\d UTC", page.text)
    assert "time, UTC" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert "style=" not in page.text  # the policy would forbid it
    assert LOOP in browser.get("/").text
    for name, meaning in (("exclude", "Arms that must not be chosen"), ("wait", "at most 30")):
        assert re.search(rf">{name}</td>.*?{meaning}", browser.get("/api").text, re.DOTALL)
    assert "no reward yet" in page.text
    clock.pass_by(61)
    visit(drinks, clock, 1)
    assert page.text.count("no reward ·") == 0
    assert browser.get(f"/loops/{LOOP}").text.count("no reward ·") >= 5  # their wait is over
    for name in ("style.css", "page.js"):
        assert browser.get(f"/{name}").status_code == 200
    assert not re.search(r"(?:src|href)=.https?:", page.text)  # nothing from elsewhere


def test_everything_of_a_loop_can_be_changed_in_the_page(drinks, browser, clock):
    """The form has every setting, and what it sends back unchanged changes nothing."""
    visit(drinks, clock, 3)
    page = browser.get(f"/loops/{LOOP}").text
    names = set(re.findall(r'id="s-(\w+)"', page))
    assert names == set(LoopSettings.__struct_fields__)
    shown = {n: re.search(rf'id="s-{n}" name="{n}" value="([^"]*)"', page) for n in names}
    form = {name: found[1] for name, found in shown.items() if found is not None}
    assert "Nothing to change" in browser.post(f"/loops/{LOOP}/settings", data=form).text
    form |= {
        "learn_early": "false", "default_reward": "", "reward_range": "0, 2",
        "categories": "zip, shop", "retention_days": "30", "note": "of the shop",
    }  # fmt: skip
    assert "Changed:" in browser.post(f"/loops/{LOOP}/settings", data=form).text
    settings = drinks.loop.settings
    assert (settings.learn_early, settings.default_reward) == (False, None)
    assert (settings.reward_range, settings.categories) == ((0.0, 2.0), ["zip", "shop"])
    assert (settings.retention_days, settings.note) == (30, "of the shop")
    answer = browser.post(f"/loops/{LOOP}/settings", data={"exploration": "lots"})
    assert (answer.status_code, "exploration" in answer.text) == (400, True)
    assert (
        "Added juice, water"
        in browser.post(f"/loops/{LOOP}/arms", data={"add": "juice, water"}).text
    )
    browser.post(f"/loops/{LOOP}/arms", data={"remove": "juice"})
    assert "juice" not in drinks.loop.arms
    assert "water" in drinks.loop.arms
    issued = browser.post(f"/loops/{LOOP}/keys", data={"role": "read"}).text
    key = re.search("<code>([A-Za-z0-9_-]{43})</code>", issued)[1]
    assert drinks.service.keys.holder(key, clock()).role == "read"
    assert browser.post(f"/loops/{LOOP}/reset", data={"confirm": "x"}).status_code == 400
    assert browser.post(f"/loops/{LOOP}/reset", data={"confirm": LOOP}).status_code == 200
    assert not drinks.loop.open_decisions
    assert browser.post(f"/loops/{LOOP}/delete", data={"confirm": LOOP}).status_code == 303
    assert LOOP not in drinks.service.loops


def test_decisions_with_and_without_context_mix(drinks, browser, clock):
    with Client(drinks.url, loop=LOOP, key=drinks.keys["administer"], timeout=PATIENCE) as client:
        for n in range(60):
            decision = client.decide({"n": n % 3} if n % 2 else None, ["tea", "milk"])
            client.reward(decision.id, float(n % 2))
            clock.pass_by(1)
        clock.pass_by(61)
        client.decide(None)
        assert browser.get(f"/loops/{LOOP}").status_code == 200
        assert client.evaluate({"greedy": {"policy": "Greedy"}})["decisions"] == 60
    asked = browser.post(f"/loops/{LOOP}/evaluate", data={"policy": "TS", "forgetting": "1"})
    assert "60 decisions, by doubly robust" in asked.text
    empty = browser.post(f"/loops/{LOOP}/evaluate", data={})
    assert empty.status_code == 400
    assert "Give the policy" in empty.text


def test_a_browser_is_signed_out_with_its_key(drinks, clock):
    """Revoked, rotated or gone with its loop: the cookie opens nothing any more."""

    def enter(key: str) -> httpx.Client:
        http = httpx.Client(timeout=PATIENCE, base_url=drinks.url)
        http.post("/login", data={"key": key})
        assert http.get("/").status_code == 200
        drinks.clients.append(http)
        return http

    server = {"authorization": f"Bearer {drinks.server_key}"}
    old, link = enter(drinks.server_key), httpx.Client(timeout=PATIENCE, base_url=drinks.url)
    drinks.clients.append(link)
    link.get(drinks.application.page.link())
    assert link.get("/").status_code == 200
    owner = enter(drinks.keys["administer"])
    for http, path, body in (
        (owner, f"/v1/loops/{LOOP}/keys", {"role": "administer", "grace": 5}),
        (old, "/v1/keys", {"grace": 5}),
    ):
        made = httpx.post(drinks.url + path, json=body, headers=server, timeout=PATIENCE).json()
        assert http.get("/").status_code == 200
        clock.pass_by(6)
        assert http.get("/").status_code == 401
    assert link.get("/").status_code == 401
    server = {"authorization": f"Bearer {made['key']}"}
    made = httpx.post(
        f"{drinks.url}/v1/loops", json={"name": "news"}, headers=server, timeout=PATIENCE
    ).json()
    owner = enter(made["keys"]["administer"])
    httpx.delete(f"{drinks.url}/v1/loops/news", headers=server, timeout=PATIENCE)
    httpx.post(f"{drinks.url}/v1/loops", json={"name": "news"}, headers=server, timeout=PATIENCE)
    assert owner.get("/loops/news").status_code == 401


def test_who_may_only_read_sees_no_forms(drinks, browser, clock):
    visit(drinks, clock, 3)
    drinks.keys["read"] = asyncio.run_coroutine_threadsafe(
        drinks.service.issue_key(drinks.loop, "read", "test"), drinks.event_loop
    ).result(PATIENCE)
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url) as http:
        http.post("/login", data={"key": drinks.keys["read"]})
        page = http.get(f"/loops/{LOOP}")
        assert page.status_code == 200
        assert "<form" not in page.text
        assert http.post(f"/loops/{LOOP}/arms", data={"add": "x"}).status_code == 403


def test_many_loops_are_shown_page_by_page(drinks, browser, monkeypatch):
    monkeypatch.setattr("tsucb.service.page.AT_ONCE", 2)
    for name in ("a1", "a2", "a3"):
        browser.post("/loops", data={"name": name})
    first, second = browser.get("/").text, browser.get("/?page=2").text
    assert "Page 1 of 2, 4 loops" in first
    assert ("/loops/a3" in first, "/loops/a3" in second) == (False, True)
    assert "/loops/drinks" not in browser.get("/?q=a").text


def test_forms_change_things(drinks, browser, clock):
    form = {"mode": "apprentice", "exploration": "0.25", "reward_wait": "30", "policy": "TS-UCB(3)"}
    assert (
        "Changed: policy, exploration, reward wait, mode"
        in browser.post(f"/loops/{LOOP}/settings", data=form).text
    )
    assert (drinks.loop.settings.mode, drinks.loop.settings.exploration) == ("apprentice", 0.25)
    assert browser.post(f"/loops/{LOOP}/settings", data={"exploration": "9"}).status_code == 400
    made = browser.post("/loops", data={"name": "news", "arms": "a, b"})
    assert re.search("<code>[A-Za-z0-9_-]{43}</code>", made.text)
    assert list(drinks.service.loop("news").arms) == ["a", "b"]
    asked = browser.post("/loops/news/evaluate", data={"policy": "Greedy", "forgetting": "1"})
    assert "holds no decisions" in asked.text
    foreign = {"sec-fetch-site": "cross-site"}
    answer = browser.post(f"/loops/{LOOP}/settings", data={"mode": "online"}, headers=foreign)
    assert answer.status_code == 403
    assert drinks.loop.settings.mode == "apprentice"


def test_an_apprentice_is_offered_the_switch_once_it_would_do_better(drinks, browser, clock):
    browser.post(f"/loops/{LOOP}/settings", data={"mode": "apprentice"})
    with Client(drinks.url, loop=LOOP, key=drinks.keys["decide"], timeout=PATIENCE) as client:
        for n in range(260):
            # The baseline differs from visit to visit, and milk is far better.
            arms = ["tea", "milk"] if n % 2 else ["milk", "tea"]
            decision = client.decide({"n": n % 5}, arms)
            client.reward(decision.id, 1.0 if decision.arm == "milk" else 0.0)
            clock.pass_by(1)
            if n == 20:
                assert "Let it decide" not in browser.get(f"/loops/{LOOP}").text
    page = browser.get(f"/loops/{LOOP}").text
    assert "Let it decide" in page
    assert "more than random choice" not in page  # an apprentice has no floor
    assert "of decisions play a random arm" not in page
    assert "</i>the baseline</li>" in page


def test_nobody_gets_in_without_a_key(drinks, clock):
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url) as http:
        for path in ("/", f"/loops/{LOOP}", "/api", "/metrics", "/loops"):
            answer = http.get(path)
            assert answer.status_code == 401
            assert "drinks" not in answer.text
        for key in ("", "wrong", drinks.keys["decide"]):
            assert http.post("/login", data={"key": key}).status_code == 401
        assert http.get("/").status_code == 401
        entered = http.post("/login", data={"key": drinks.keys["administer"]})
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert drinks.keys["administer"] not in cookie
        assert http.get(f"/loops/{LOOP}").status_code == 200
        assert http.post("/loops", data={"name": "x"}).status_code == 403
        # Cookies are for pages: the protocols do not take them.
        assert http.get(f"/v1/loops/{LOOP}").status_code == 401
        clock.pass_by(13 * 3_600)
        assert http.get(f"/loops/{LOOP}").status_code == 401


def test_a_link_lets_in_once(drinks):
    link = drinks.application.page.link()
    with httpx.Client(timeout=PATIENCE, base_url=drinks.url) as http:
        assert http.get(link).status_code == 200
        assert http.get("/").status_code == 200
        http.get("/logout")
        assert http.get("/").status_code == 401
    assert httpx.get(drinks.url + link, timeout=PATIENCE).status_code == 401


def test_health_and_metrics(drinks, clock):
    visit(drinks, clock, 3)
    assert httpx.get(f"{drinks.url}/healthz", timeout=PATIENCE).status_code == 200
    assert httpx.get(f"{drinks.url}/readyz", timeout=PATIENCE).json()["store"] == "working"
    headers = {"authorization": f"Bearer {drinks.server_key}"}
    text = httpx.get(f"{drinks.url}/metrics", headers=headers, timeout=PATIENCE).text
    assert 'tsucb_loop_decisions_total{loop="drinks"} 3' in text
    assert re.search(r'tsucb_answers_total\{protocol="v1",status="200"\} 4', text)
    assert 'tsucb_answer_seconds_count{operation="decide",protocol="v1"} 3' in text
    drinks.loop.counts.late = 123_456_789  # every digit of a counter counts
    text = httpx.get(f"{drinks.url}/metrics", headers=headers, timeout=PATIENCE).text
    late = re.search(r'tsucb_loop_late_total\{loop="drinks"\} (\S+)', text)
    assert float(late[1]) == 123_456_789
    drinks.service.ledger.failed = True
    assert httpx.get(f"{drinks.url}/healthz", timeout=PATIENCE).status_code == 200
    assert httpx.get(f"{drinks.url}/readyz", timeout=PATIENCE).status_code == 503
    drinks.service.ledger.failed = False


def test_the_openapi_document_describes_every_operation(drinks):
    found = httpx.get(f"{drinks.url}/openapi.json", timeout=PATIENCE).json()
    assert found["openapi"].startswith("3.1")
    operations = {(m.upper(), p) for p, methods in found["paths"].items() for m in methods}
    assert ("POST", "/v1/loops/{loop}/decide") in operations
    assert ("GET", "/v1/loops/{loop}/decisions/{id}") in operations
    assert len(operations) == len(OPERATIONS.all)
    ids = [o["operationId"] for methods in found["paths"].values() for o in methods.values()]
    assert len(set(ids)) == len(ids)
    schemas = found["components"]["schemas"]
    assert {"DecisionRequest", "DecisionAnswer", "LoopSettings"} <= set(schemas)
    exploration = schemas["LoopSettings"]["properties"]["exploration"]
    assert (exploration["minimum"], exploration["maximum"]) == (0, 1)
    references = re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', json.dumps(found))
    assert {"RewardGiven", "LoopSettings"} <= set(references) <= set(schemas)
