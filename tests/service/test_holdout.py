"""The holdout: a share of decisions that plays the baseline, and what it says about the rest."""

import math

import pytest

from tests.service.conftest import run, running
from tests.service.test_loop import WAIT, log_gives, made
from tsucb.service.questions import Wanted
from tsucb.service.state import Span

ARMS = ["tea", "milk", "juice"]


def test_its_share_plays_the_baseline_and_its_probabilities_are_exact(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, holdout=0.3, exploration=0.2)
            held = 0
            for n in range(400):
                event = await service.decide(loop, {"n": n % 3}, ARMS[n % 3 :] + ARMS[: n % 3])
                (pick,) = event.picks
                held += event.held
                assert not event.held or pick.arm == pick.arms[0]
                # (1 − h) ((1 − ε) [favourite] + ε / K) + h [baseline]
                for arm, chance in zip(pick.arms, pick.chances, strict=True):
                    policy = 0.8 * (arm == pick.favourite) + 0.2 / 3
                    expected = 0.7 * policy + 0.3 * (arm == pick.arms[0])
                    assert chance == pytest.approx(expected)
                await service.reward(loop, event.id, float(pick.arm == "milk"))
            assert abs(held - 120) < 4 * math.sqrt(400 * 0.3 * 0.7)  # a false alarm in 16,000
            clock.pass_by(WAIT)
            await service.upkeep.tick()
            whole = loop.tally.whole()
            assert whole.held == held
            assert log_gives(service).digest() == loop.digest()
            # Milk is the baseline in a third of the decisions, and the loop finds it in all.
            assert whole.group(held=True)[0] == pytest.approx(1 / 3, abs=0.2)
            assert whole.over_holdout()[1] > 0

    run(main)


def test_a_person_is_always_in_it_or_never(open_store, clock):
    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, holdout=0.4)
            groups = {
                who: {(await service.decide(loop, None, person=who)).held for _ in range(5)}
                for who in map(str, range(60))
            }
            assert all(len(found) == 1 for found in groups.values())
            before = {who for who, found in groups.items() if True in found}
            assert 8 < len(before) < 40  # 24 on average
            await service.configure(loop, {"holdout": 0.6}, "test")
            now = {who for who in groups if (await service.decide(loop, None, person=who)).held}
            assert before < now, "who was in a smaller holdout is in a larger one"
            await service.configure(loop, {"mode": "apprentice"}, "test")
            assert not (await service.decide(loop, None, person=min(now))).held

    run(main)


@pytest.mark.parametrize("alike", [True, False], ids=["list", "slots"])
def test_lists_and_slots(open_store, clock, alike):
    """The probabilities of all picks are those of both groups together."""

    async def main():
        async with running(open_store(), clock) as service:
            loop = await made(service, holdout=0.25, exploration=0.4)
            slots = [Wanted("a"), Wanted("b")]
            if not alike:
                slots[1] = Wanted("b", None, (), "juice")
            seen = set()
            for _ in range(40):
                event = await service.decide(loop, {"n": 1}, ARMS, slots=slots)
                seen.add(event.held)
                first, second = event.picks
                assert sum(first.chances) == pytest.approx(1)
                assert sum(second.chances) == pytest.approx(1)
                baselines = ["tea", "milk" if alike or first.arm == "juice" else "juice"]
                if event.held:
                    assert [pick.arm for pick in event.picks] == baselines
                free = [
                    0.6 * (pick.arm == pick.favourite) + 0.4 / len(pick.arms)
                    for pick in event.picks
                ]
                both = math.prod(p.chances[p.arms.index(p.arm)] for p in event.picks)
                is_baseline = [pick.arm for pick in event.picks] == baselines
                assert both == pytest.approx(0.75 * math.prod(free) + 0.25 * is_baseline)
            assert seen == {True, False}

    run(main)


def test_the_interval_of_the_difference():
    span = Span(0.0, rewards=300, total=90.0, squares=90.0, held=100, held_total=20.0,
                held_squares=20.0, arms={})  # fmt: skip
    value, low, high = span.over_holdout()
    assert value == pytest.approx(70 / 200 - 0.2)
    error = 1.96 * math.sqrt(0.35 * 0.65 / 199 + 0.2 * 0.8 / 99)
    assert (low, high) == pytest.approx((value - error, value + error))
    assert math.isnan(Span(0.0, rewards=5, total=1.0, arms={}).over_holdout()[0])
