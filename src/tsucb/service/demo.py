"""Simulated visitors, to see pages with changing numbers: `tsucb serve --demo`."""

import asyncio
import math
import random
from typing import TYPE_CHECKING

from tsucb.service.settings import LoopSettings

if TYPE_CHECKING:
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service

NAME = "demo"
ARMS = ("article", "video", "quiz", "discount")
# The log-odds of a click on each arm, and their change at night, on a phone, for a regular visitor.
TASTES = {
    "article": (-1.2, 0.4, -0.8, 0.9),
    "video": (-1.6, 1.4, 0.7, 0.0),
    "quiz": (-2.0, 0.2, 1.2, 0.3),
    "discount": (-1.4, 0.0, 0.0, -0.9),
}
SETTINGS = LoopSettings(
    exploration=0.1, reward_wait=15.0, learn_early=False, note="simulated visitors"
)


async def play(service: "Service", per_second: float = 40.0, seed: int = 0) -> None:
    """Let visitors come, and some of them click on what they see; until cancelled."""
    if NAME not in service.loops:
        await service.create(NAME, SETTINGS, ARMS, "demo")
    rng = random.Random(seed)
    while True:
        await asyncio.sleep(rng.expovariate(per_second))
        service.turns.begin(visit(service, service.loop(NAME), rng))


async def visit(service: "Service", loop: "Loop", rng: random.Random) -> None:
    night, phone, regular = (rng.random() < share for share in (0.4, 0.6, 0.3))
    context = {
        "time": "night" if night else "day",
        "device": "phone" if phone else "desktop",
        "regular": regular,
        "age": rng.randrange(16, 80),
    }
    decision = await service.decide(loop, context)
    base, *effects = TASTES[decision.picks[0].arm]
    taste = base + sum(e for e, on in zip(effects, (night, phone, regular), strict=True) if on)
    if rng.random() < 1 / (1 + math.exp(-taste)):
        await asyncio.sleep(rng.expovariate(1 / 2.0))
        await service.reward(loop, decision.id, 1.0)
