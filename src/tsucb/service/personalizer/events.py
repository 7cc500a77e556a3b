"""Rank, reward and activate, for one slot or for several."""

import hashlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tsucb.service.errors import NotFound
from tsucb.service.events import Rewarded
from tsucb.service.http import Call
from tsucb.service.keys import DECIDE
from tsucb.service.loop import LATE
from tsucb.service.personalizer.routes import ROUTES
from tsucb.service.questions import ONE, Wanted, features_of_arms, flatten

MOST_ACTIONS = 50
REWARDS = (-1.0, 1.0)
Value = Annotated[float, Meta(ge=REWARDS[0], le=REWARDS[1])]
WRONG_RANK, WRONG_REWARD = "InvalidRankRequest", "InvalidRewardRequest"
WRONG_ID = "InvalidEventIdToActivate"


class Action(msgspec.Struct):
    """An action with its features."""

    id: str
    features: list[dict[str, Any]] = []


class SlotRequest(msgspec.Struct, rename="camel"):
    """A slot to fill. The manual of one client calls its features positionFeatures."""

    id: str
    features: list[dict[str, Any]] | None = None
    position_features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None
    baseline_action: str | None = None


class RankRequest(msgspec.Struct, rename="camel"):
    """Actions to rank; for several places, with `slots`."""

    actions: list[Action]
    context_features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None
    event_id: str | None = None
    defer_activation: bool | None = False
    slots: list[SlotRequest] | None = None


class SlotReward(msgspec.Struct, rename="camel"):
    """The reward of one slot."""

    slot_id: str
    value: Value


@ROUTES.add("POST", "rank", DECIDE, status=201, code=WRONG_RANK)
async def rank(call: Call, body: RankRequest) -> Any:
    """Rank the actions."""
    event = await make_decision(call, body, ONE)
    pick = event.picks[0]
    chances = dict(zip(pick.arms, pick.chances, strict=True))
    arms = event.ranking or pick.arms
    ranking = [{"id": arm, "probability": chances.get(arm, 0.0)} for arm in arms]
    return {"ranking": ranking, "eventId": event.id, "rewardActionId": pick.arm}


@ROUTES.add("POST", "multislot/rank", DECIDE, status=201, code=WRONG_RANK)
async def rank_slots(call: Call, body: RankRequest) -> Any:
    """Choose an action for every slot."""
    if not body.slots:
        raise ValueError("slots are missing; give at least one")
    if len(body.slots) > len(body.actions):
        raise ValueError("there are more slots than actions; give at least as many actions")
    names = [slot.id for slot in body.slots]
    if len(set(names)) < len(names) or not all(names):
        raise ValueError("every slot needs an id of its own")
    slots = []
    for slot in body.slots:
        features = flatten(slot.features or slot.position_features)
        excluded = slot.excluded_actions or []
        if slot.baseline_action in excluded:
            raise ValueError(f"the baseline action of slot {slot.id!r} is excluded from it")
        slots.append(Wanted(slot.id, features, excluded, slot.baseline_action))
    event = await make_decision(call, body, tuple(slots))
    found = [{"id": pick.slot, "rewardActionId": pick.arm} for pick in event.picks]
    return {"slots": found, "eventId": event.id}


async def make_decision(call: Call, asked: RankRequest, slots: tuple[Wanted, ...]) -> Any:
    """Check a rank request, and make its decision."""
    if not 1 <= len(asked.actions) <= MOST_ACTIONS:
        raise ValueError(f"there must be 1 to {MOST_ACTIONS} actions, not {len(asked.actions)}")
    arms = [action.id for action in asked.actions]
    if len(set(arms)) < len(arms):
        raise ValueError("every action needs an id of its own")
    features = features_of_arms({action.id: action.features for action in asked.actions})
    return await call.service.decide(
        call.loop, flatten(asked.context_features), arms, arm_features=features,
        excluded=asked.excluded_actions or (), slots=slots, id=asked.event_id or None,
        deferred=bool(asked.defer_activation), key=repeat_key(call), ranked=True,
    )  # fmt: skip


@ROUTES.add("POST", "events/{id}/reward", DECIDE, code=WRONG_REWARD)
async def reward_event(call: Call, *, value: Value) -> None:
    """Take the reward of an event; a late reward is logged, and not learned."""
    await call.service.reward(call.loop, call.id, value, key=repeat_key(call))


@ROUTES.add("POST", "multislot/events/{id}/reward", DECIDE, code=WRONG_REWARD)
async def reward_slots(
    call: Call, *, reward: Annotated[list[SlotReward], Meta(min_length=1)]
) -> None:
    """Take the rewards of slots."""
    key, now = repeat_key(call), call.service.clock()
    rewards = [Rewarded(now, call.id, e.value, e.slot_id, key) for e in reward]
    await call.service.reward_all(call.loop, rewards, strict=True)


@ROUTES.add("POST", "events/{id}/activate", DECIDE, code=WRONG_ID)
@ROUTES.add("POST", "multislot/events/{id}/activate", DECIDE, code=WRONG_ID)
async def activate(call: Call) -> None:
    """Put a deferred event to use, within the wait."""
    loop, id = call.loop, call.id
    try:
        found = await call.service.activate(loop, id)
    except NotFound as error:
        raise ValueError(str(error)) from None
    if found == LATE and id not in loop.open_decisions:
        event = await call.service.decision(loop, id)
        if event.deferred and loop.now >= event.time + loop.settings.reward_wait:
            raise ValueError(f"the wait for event {id!r} is over; it can no longer be activated")


def repeat_key(call: Call) -> str | None:
    """Return the key that identifies repeats of a request; None if it has no usable id.

    The key has a hash of path and body as well, as an application may give all requests of a visit
    the same id.
    """
    id = call.header(b"x-ms-client-request-id")
    if not id or len(id) > 200:
        return None
    return id + hashlib.blake2b(call.raw_path + call.body, digest_size=8).hexdigest()
