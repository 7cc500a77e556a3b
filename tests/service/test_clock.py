"""Clocks that jump, and clocks that differ: no reward is lost by them."""

import pytest

from tests.service.conftest import Clock, run, running
from tests.service.test_loop import ARMS, WAIT, learned, log_gives, made, pulls
from tests.service.test_postgres import in_step, stores  # noqa: F401 (a fixture)
from tsucb.service.application import Rates
from tsucb.service.loop import LATE, TAKEN
from tsucb.service.scheduling import SteadyClock
from tsucb.service.settings import LoopSettings

HOUR, DAY = 3_600.0, 86_400.0


@pytest.mark.parametrize("jumps", [(-HOUR,), (DAY, -DAY), (-DAY, DAY), (DAY,)])
@pytest.mark.parametrize("restart", [False, True])
def test_a_jump_of_the_clock_loses_no_reward(open_store, jumps, restart):
    """Decisions before and after it, rewarded a moment after it, without any tick or with many."""
    wall, steady = Clock(), Clock()

    def pass_by(seconds):
        wall.pass_by(seconds)
        steady.pass_by(seconds)

    async def main():
        ids = []
        async with running(open_store(), wall, steady=steady) as service:
            loop = await made(service, default_reward=-1.0)
            ids.append((await service.decide(loop, {"n": 1})).id)
            for jump in jumps:
                wall.pass_by(jump)
                pass_by(0.02)
                await service.upkeep.tick()
                ids.append((await service.decide(loop, {"n": 2})).id)
            assert abs(service.clock.skew - sum(jumps)) < 1
            assert ("clock" in service.alerts) == (sum(jumps) != 0)
            if not restart:
                pass_by(0.02)
                assert [await service.reward(loop, id, 1.0) for id in ids] == [TAKEN] * len(ids)
                last = (await service.decide(loop, {"n": 3})).id
                pass_by(WAIT * 1.2)  # a clock that is ahead goes a tenth slower
                await service.upkeep.tick()
                assert await service.reward(loop, last, 1.0) == LATE
                assert learned(loop) == len(ids) - 1
                return
        if sum(jumps) > 0:
            return  # what a stopped service missed is the time that the clock says
        async with running(open_store(), wall, steady=steady) as service:
            loop = service.loop("drinks")
            ids.append((await service.decide(loop, {"n": 4})).id)
            pass_by(0.02)
            assert [await service.reward(loop, id, 1.0) for id in ids] == [TAKEN] * len(ids)
            assert (pulls(loop), loop.counts.defaults) == (len(ids), 0)
            assert log_gives(service, snapshots=False).digest() == loop.digest()

    run(main)


@pytest.mark.parametrize("skew", [90.0, -90.0])
def test_servers_whose_clocks_differ_lose_no_reward(schema, stores, clock, skew):  # noqa: F811
    """By more than the wait: all go by the time of the leader."""

    async def main():
        first, second = stores(schema, schema)
        other = Clock()
        other.pass_by(skew)
        async with running(first, clock) as one, running(second, other) as two:
            for service in (one, two):
                service.upkeep.ticking.cancel()
            settings = LoopSettings(reward_wait=60.0, learn_early=True)
            await one.create("drinks", settings, ARMS)
            await in_step(one, two)
            services = [(one, one.loop("drinks")), (two, two.loop("drinks"))]
            for n in range(20):
                maker, taker = services[n % 2], services[n // 2 % 2]
                event = await maker[0].decide(maker[1], {"n": n})
                for each in (clock, other):
                    each.pass_by(1.0)
                await in_step(one, two)
                assert await taker[0].reward(taker[1], event.id, 1.0) == TAKEN
            assert two.clock.skew == pytest.approx(skew, abs=1)
            assert one.clock.skew == pytest.approx(0, abs=1)
            assert "clock" in two.alerts
            event = await two.decide(services[1][1], {"n": 0})
            for each in (clock, other):
                each.pass_by(61)
            await in_step(one, two)
            assert await two.reward(services[1][1], event.id, 1.0) == LATE

    run(main)


def test_limits_of_rates_survive_a_clock_that_goes_back():
    wall, steady = Clock(), Clock()
    clock = SteadyClock(wall, steady)
    rates = Rates(2, clock)
    assert [rates.allows("key") for _ in range(3)] == [True, True, False]
    wall.pass_by(-HOUR)
    steady.pass_by(1)
    assert rates.allows("key")


def test_a_clock_that_is_ahead_comes_back_slowly():
    wall, steady = Clock(), Clock()
    clock = SteadyClock(wall, steady)
    wall.pass_by(-100)
    before = clock()
    clock.follow(None, forward=True)
    for each in (wall, steady):
        each.pass_by(500)
    assert clock() == before + 450
    for each in (wall, steady):
        each.pass_by(5_000)
    assert clock() == wall()
    wall.pass_by(50)
    clock.follow(None, forward=False)
    assert clock() == wall() - 50
    clock.follow(None, forward=True)
    assert clock() == wall()
