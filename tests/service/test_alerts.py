"""Alerts: for programs, for Prometheus, and on the page."""

import math
from types import SimpleNamespace

import httpx
import pytest

from tests.service.conftest import PATIENCE, run, running
from tests.service.serving import LOOP, served
from tests.service.test_loop import WAIT, log_gives, made
from tsucb.models.change import NoticedChange
from tsucb.service import monitoring
from tsucb.service.client import Client
from tsucb.service.monitoring import all_alerts, loop_alerts
from tsucb.service.native import summary
from tsucb.service.state import Span


def words(found) -> list[str]:
    return [each.alert for each in found]


def test_a_loop_whose_rewards_stop(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            for n in range(250):
                event = await service.decide(loop, {"n": n})
                if n < 100:
                    await service.reward(loop, event.id, 1.0)
                clock.pass_by(1)
                if n == 150:
                    clock.pass_by(WAIT)
                    await service.upkeep.tick()
                    assert words(loop_alerts(loop)) == []
            clock.pass_by(WAIT + 10)
            await service.upkeep.tick()
            (found,) = loop_alerts(loop)
            assert (found.alert, found.loop) == ("no_rewards", loop.name)
            assert "got no reward" in found.text

    run(main)


def test_a_loop_that_earns_less(open_store, clock, monkeypatch):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service)
            clock.pass_by(10 * WAIT)
            loop.now = clock()
            bad = Span(0.0, 500, 500, 250.0, 250.0, 500.0, 400.0, -150.0, 100.0, {}, came=500)
            bad.control = 500
            loop.tally.spans = [bad]
            assert words(loop_alerts(loop)) == ["lift_below_zero"]
            bad.lift, bad.held, bad.held_total, bad.held_squares = 1.0, 100, 90.0, 90.0
            assert words(loop_alerts(loop)) == ["holdout_earns_more"]
            bad.held = 0
            # Models that notice changes say at which reward.
            changes = [NoticedChange(10, None, 0.5), NoticedChange(4_900, "tea", 0.01)]
            monkeypatch.setattr(loop, "noticed_changes", lambda: changes)
            loop.counts.learned = 5_000
            (found,) = loop_alerts(loop)
            assert found.alert == "drift"
            assert found.text == f"a change was noticed 100 rewards ago, {changes[-1]}"
            loop.counts.learned = 50_000
            assert words(loop_alerts(loop)) == []

    run(main)


@pytest.mark.parametrize("settings", [{"mode": "apprentice"}, {"exploration": 0.0}])
def test_without_a_floor_nothing_is_said_of_random_choice(open_store, clock, settings):
    """Rewards are all −1: to multiply them by 1 / (K p) would look like a loss."""

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, learn_early=True, **settings)
            for _ in range(150):
                event = await service.decide(loop, None)
                await service.reward(loop, event.id, -1.0)
            clock.pass_by(WAIT + 10)
            await service.upkeep.tick()
            assert all(map(math.isnan, summary(loop)["over_random"]))
            assert words(loop_alerts(loop)) == []
            await service.configure(loop, {"mode": "online", "exploration": 0.5}, "test")
            for _ in range(20):
                event = await service.decide(loop, None)
                await service.reward(loop, event.id, -1.0)
            clock.pass_by(WAIT + 10)
            await service.upkeep.tick()
            assert loop.tally.whole().control == 20
            assert not any(map(math.isnan, summary(loop)["over_random"]))
            assert log_gives(service).digest() == loop.digest()

    run(main)


def test_a_change_that_the_model_notices(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, learn_early=True)
            for n in range(400):
                event = await service.decide(loop, None)
                usual = 1.0 if (event.picks[0].arm == "tea") == (n < 250) else 0.0
                await service.reward(loop, event.id, usual + 0.1 * (n % 3))
                if n == 249:
                    assert words(loop_alerts(loop)) == []
            assert "drift" in words(loop_alerts(loop))
            assert summary(loop)["changes"][-1]["step"] > 250

    run(main)


@pytest.mark.parametrize("broken", ["skew", "store", "lag", "disk"])
def test_a_server(open_store, clock, monkeypatch, broken):
    async def main():
        async with running(open_store(), clock) as service:
            service.upkeep.ticking.cancel()
            assert all_alerts(service) == []
            if broken == "skew":
                service.clock._wall = lambda: clock() + 60
                service.upkeep.watch_clock()
            elif broken == "store":
                service.ledger.failed = True
            elif broken == "lag":
                service.upkeep.lag = monitoring.LAG + 1
            else:
                service.upkeep.folder = "/"
                usage = SimpleNamespace(free=1, total=100)
                monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
            (found,) = all_alerts(service)
            assert (found.alert, found.loop) == (broken, "")
            service.ledger.failed = False

    run(main)


def test_protocol_metrics_and_page(tmp_path, clock):
    with served(tmp_path / "data", clock) as drinks:
        spans = [Span(0.0, 200, 200, arms={})]
        drinks.loop.tally.spans, drinks.loop.now = spans, clock()
        server = {"authorization": f"Bearer {drinks.server_key}"}
        reader = {"authorization": f"Bearer {drinks.keys['administer']}"}

        def get(path, headers):
            return httpx.get(drinks.url + path, headers=headers, timeout=PATIENCE)

        found = get("/v1/alerts", server).json()["alerts"]
        assert [(each["alert"], each["loop"]) for each in found] == [("no_rewards", LOOP)]
        assert get(f"/v1/loops/{LOOP}/alerts", reader).json()["alerts"] == found
        assert get("/v1/alerts", reader).status_code == 403
        text = get("/metrics", server).text
        assert f'tsucb_alert{{alert="no_rewards",loop="{LOOP}"}} 1.0' in text
        assert "tsucb_disk_free " in text
        for path, who in (("/", server), (f"/loops/{LOOP}", reader)):
            assert "got no reward" in get(path, who).text


def test_a_noticed_change_is_told_everywhere(tmp_path, clock):
    with served(tmp_path / "data", clock, model="AdaptiveCurves") as drinks:
        server = {"authorization": f"Bearer {drinks.server_key}"}
        with Client(drinks.url, key=drinks.keys["decide"], loop=LOOP) as client:
            for n in range(400):
                decision = client.decide(arms=["tea", "milk"])
                usual = 1.0 if (decision.arm == "tea") == (n < 250) else 0.0
                client.reward(decision.id, usual + 0.1 * (n % 3))

        def get(path):
            return httpx.get(drinks.url + path, headers=server, timeout=PATIENCE)

        (found,) = get("/v1/alerts").json()["alerts"]
        assert (found["alert"], found["loop"]) == ("drift", LOOP)
        assert "had changed" in found["text"]
        assert f'tsucb_alert{{alert="drift",loop="{LOOP}"}} 1.0' in get("/metrics").text
        for path in ("/", f"/loops/{LOOP}"):
            assert "had changed" in get(path).text
