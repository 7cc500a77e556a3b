"""The page, health, metrics and the OpenAPI document, over real connections."""

import re
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import PATIENCE, Clock
from tests.service.serving import LOOP, served
from tsucb.service.client import Client

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def drinks(tmp_path: Path, clock: Clock):
    with served(tmp_path / "data", clock, reward_wait=60.0, exploration=0.3) as found:
        yield found


@pytest.fixture
def browser(drinks):
    """Someone who has entered with the key of the server."""
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
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert "style=" not in page.text  # the policy would forbid it
    assert LOOP in browser.get("/").text
    assert "decide" in browser.get("/api").text
    for name in ("style.css", "page.js"):
        assert browser.get(f"/{name}").status_code == 200
    assert not re.search(r"(?:src|href)=.https?:", page.text)  # nothing from elsewhere


def test_forms_change_things(drinks, browser, clock):
    form = {"mode": "apprentice", "exploration": "0.25", "reward_wait": "30", "policy": "TS-UCB(3)"}
    assert "Changed" in browser.post(f"/loops/{LOOP}/settings", data=form).text
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
    assert "Let it decide" in browser.get(f"/loops/{LOOP}").text


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
    drinks.service.journal.failed = True
    assert httpx.get(f"{drinks.url}/healthz", timeout=PATIENCE).status_code == 200
    assert httpx.get(f"{drinks.url}/readyz", timeout=PATIENCE).status_code == 503
    drinks.service.journal.failed = False


def test_the_openapi_document_describes_every_operation(drinks):
    found = httpx.get(f"{drinks.url}/openapi.json", timeout=PATIENCE).json()
    assert found["openapi"].startswith("3.1")
    operations = {(m.upper(), p) for p, methods in found["paths"].items() for m in methods}
    assert ("POST", "/v1/loops/{loop}/decide") in operations
    assert ("GET", "/v1/loops/{loop}/decisions/{id}") in operations
    native = drinks.application.protocols["v1"]
    assert len(operations) == len(native.operations) + 4
    schemas = found["components"]["schemas"]
    assert {"Question", "DecisionAnswer", "LoopSettings"} <= set(schemas)
    exploration = schemas["LoopSettings"]["properties"]["exploration"]
    assert (exploration["minimum"], exploration["maximum"]) == (0, 1)
    for reference in re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', str(found)):
        assert reference in schemas
