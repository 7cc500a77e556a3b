"""The native protocol of the service: JSON under /v1."""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tsucb.service.errors import Problem
from tsucb.service.events import Decided, Rewarded, decode
from tsucb.service.export import comparison, export_parquet
from tsucb.service.http import Answer, Call, Operations, json_answer
from tsucb.service.keys import ADMINISTER, CHOOSE, DECIDE, GRACE, LOOK, READ
from tsucb.service.loop import Loop
from tsucb.service.monitoring import all_alerts, loop_alerts
from tsucb.service.questions import ONE, Question, Wanted, features_of_arms, flatten
from tsucb.service.settings import LoopSettings, changed

MOST_PLACES = 100  # of a list
MOST_COMPARED = 20_000  # events that an evaluation reads by default
POLL = 0.2  # seconds between two looks for new events while a client waits for some


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A question which arm to play.

    Parameters
    ----------
    context : Features of the decision: names to numbers, texts, booleans.
    arms : The names of the arms to choose from, or names with features; null for all of the loop.
    exclude : Arms that must not be chosen.
    k : Choose a list of this many arms; null for one arm.
    id : An id of your own for the decision.
    deferred : The decision counts once it is activated.
    key : The same in a repeat of the request.
    person : The person whom the decision is for; POST forget deletes all decisions of a person.
    """

    context: dict[str, Any] | None = None
    arms: list[str] | dict[str, dict[str, Any] | None] | None = None
    exclude: list[str] = []
    k: Annotated[int, Meta(ge=1, le=MOST_PLACES)] | None = None
    id: str | None = None
    deferred: bool = False
    key: str | None = None
    person: str | None = None


class DecisionAnswer(msgspec.Struct, omit_defaults=True):
    """A decision.

    Parameters
    ----------
    id : The id under which to report its reward.
    arm : The arm to play; the first of a list.
    probability : The probability with which it was chosen.
    probabilities : The probabilities of all arms that it was chosen from, by name.
    arms : The list, if one was asked for.
    """

    id: str
    arm: str
    probability: float
    probabilities: dict[str, float]
    arms: list[str] | None = None


class RewardGiven(msgspec.Struct, forbid_unknown_fields=True):
    """The reward of a decision.

    Parameters
    ----------
    id : The decision.
    reward : Its reward.
    place : The place in the list, from 0, whose arm earned it; null for a decision without a list.
    key : The same in a repeat of the request.
    """

    id: str
    reward: float
    place: int | None = None
    key: str | None = None


Role = Literal["choose", "decide", "read", "administer"]
Grace = Annotated[float, Meta(ge=0, le=30 * GRACE)]
SETTINGS_SCHEMA = {"$ref": "#/components/schemas/LoopSettings"}
SettingsChanges = Annotated[dict[str, Any], Meta(extra_json_schema=SETTINGS_SCHEMA)]

OPERATIONS = Operations(where="json", forbid_unknown_fields=True)
ALL = "loops/{loop}"


class Native:
    """Answers requests under /v1."""

    def problem(self, problem: Problem) -> Answer:
        """Return an error as this protocol has it."""
        body = {"error": {"code": problem.code, "message": str(problem)}}
        return json_answer(body, problem.status, problem.headers)

    async def answer(self, call: Call) -> Answer:
        """Find the operation, check the key, and answer."""
        operation = OPERATIONS.find(call, call.path[1:])
        name = call.path_values[0] if call.path_values else None
        call.check_allowed(operation.action, name)
        call.loop = None if name is None else call.service.loop(name)
        return await operation.perform(call)


# The server


@OPERATIONS.add("GET", "loops", ADMINISTER)
async def list_loops(call: Call) -> Any:
    """List the loops."""
    found = []
    for loop in list(call.service.loops.values()):
        found.append(await call.service.look(loop, partial(summary, loop)))
        await asyncio.sleep(0)  # between many loops, answer other requests
    return {"loops": found}


@OPERATIONS.add("POST", "loops", ADMINISTER, name="NewLoop", status=201)
async def create(
    call: Call, *, name: str, settings: SettingsChanges | None = None, arms: Sequence[str] = ()
) -> Any:
    """Create a loop."""
    chosen = changed(LoopSettings(), settings or {})
    return {"name": name, "keys": await call.service.create(name, chosen, arms, **call.by)}


@OPERATIONS.add("POST", "keys", ADMINISTER, name="ServerKey", status=201)
async def rotate_server_key(call: Call, *, grace: Grace = GRACE) -> Any:
    """Issue a key of the server; the old one works for `grace` seconds more."""
    return {"key": await call.service.issue_key(None, ADMINISTER, grace=grace, **call.by)}


@OPERATIONS.add("GET", f"{ALL}/audit", READ)
@OPERATIONS.add("GET", "audit", ADMINISTER)
async def audit(call: Call) -> Any:
    """Show the last administrative calls."""
    name = call.loop and call.loop.name
    records = await asyncio.to_thread(call.service.store.audit, name, 1_000)
    return {"audit": [record._asdict() for record in records]}


@OPERATIONS.add("GET", f"{ALL}/alerts", READ)
@OPERATIONS.add("GET", "alerts", READ)
async def alerts(call: Call) -> Any:
    """Show what needs attention now: no rewards, drift, lift, clock, lag, disk."""
    if call.loop is None:
        found = await call.service.turns.in_background(all_alerts, call.service)
    else:
        found = await call.service.look(call.loop, lambda: list(loop_alerts(call.loop)))
    return {"alerts": [each._asdict() for each in found]}


# Deciding


@OPERATIONS.add("POST", f"{ALL}/decide", CHOOSE, answer=DecisionAnswer)
async def decide(call: Call, body: DecisionRequest) -> Any:
    """Choose an arm, or a list of arms."""
    arms, features = body.arms, None
    if isinstance(arms, dict):
        features, arms = features_of_arms(arms), list(arms)
    slots = ONE if body.k is None else tuple(Wanted(str(place)) for place in range(body.k))
    event = await call.service.decide(
        call.loop, flatten(body.context), arms, arm_features=features, slots=slots,
        excluded=body.exclude, id=body.id, deferred=body.deferred, key=body.key,
        person=body.person, may_add=call.holder.may(DECIDE, call.loop.name),
    )  # fmt: skip
    first = event.picks[0]
    chances = dict(zip(first.arms, first.chances, strict=True))
    chosen = [pick.arm for pick in event.picks] if first.slot else None
    return DecisionAnswer(event.id, first.arm, chances[first.arm], chances, chosen)


@OPERATIONS.add("POST", f"{ALL}/reward", CHOOSE)
async def reward(call: Call, body: RewardGiven | list[RewardGiven]) -> Any:
    """Take one reward, or several: all without an error are written together."""
    several, now = isinstance(body, list), call.service.clock()
    given = [
        Rewarded(now, r.id, r.reward, "" if r.place is None else str(r.place), r.key)
        for r in (body if isinstance(body, list) else [body])
    ]
    found = await call.service.reward_all(call.loop, given, strict=not several)
    results = [{"result": r} if isinstance(r, str) else {"error": str(r)} for r in found]
    return {"results": results} if several else results[0]


@OPERATIONS.add("POST", f"{ALL}/activate", CHOOSE, name="DecisionId")
async def activate(call: Call, *, id: str) -> Any:
    """Put a deferred decision to use."""
    return {"result": await call.service.activate(call.loop, id)}


@OPERATIONS.add("POST", f"{ALL}/estimates", LOOK, name="EstimateQuestion")
async def estimates(
    call: Call, *, context: dict[str, Any] | None = None, arms: list[str] | None = None
) -> Any:
    """Estimate the arms' rewards in a context; decide nothing."""
    loop, features = call.loop, flatten(context)
    offered = list(loop.arms) if arms is None else arms
    unknown = loop.unknown(offered)
    if unknown or not offered:
        raise ValueError(f"there is no arm {unknown[0]!r}" if unknown else "there are no arms")
    (pick,) = await call.service.look(loop, partial(Question(features).fill, loop, offered))
    event = Decided(0.0, "", features, [pick], *loop.settings.rule_names())
    rows = event.described(pick)["arms"]
    return {"arms": [{k: v for k, v in row.items() if k != "probability"} for row in rows]}


# Looking


@OPERATIONS.add("GET", ALL, READ)
async def show(call: Call) -> Any:
    """Show a loop with its settings, arms and counts."""
    return await call.service.look(call.loop, partial(summary, call.loop))


@OPERATIONS.add("GET", f"{ALL}/configuration", READ, answer=LoopSettings)
async def configuration(call: Call) -> Any:
    """Show the settings of a loop."""
    return asdict(call.loop.settings)


@OPERATIONS.add("GET", f"{ALL}/arms", LOOK)
async def arms(call: Call) -> Any:
    """List the arms of a loop, with their pulls and mean rewards."""
    return {"arms": await call.service.look(call.loop, partial(arm_summary, call.loop))}


@OPERATIONS.add("GET", f"{ALL}/decisions/{{id}}", READ)
async def explain(call: Call) -> Any:
    """Explain a past decision: why it was made, and which rewards came."""
    decision = await call.service.decision(call.loop, call.id)
    rewards = [
        {"time": e.time, "reward": e.value, "place": e.slot or None}
        for e in await call.service.history(call.loop, call.id)
        if isinstance(e, Rewarded)
    ]
    names = "id", "time", "policy", "context", "deferred", "person"
    return {
        **{name: getattr(decision, name) for name in names},
        "picks": [
            {**decision.described(pick), "text": str(decision.explanation(pick))}
            for pick in decision.picks
        ],
        "waiting": call.id in call.loop.open_decisions,
        "rewards": rewards,
    }


@OPERATIONS.add("GET", f"{ALL}/events", READ)
async def events_after(
    call: Call,
    *,
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0,
    most: Annotated[int, Meta(ge=1, le=10_000)] = 1_000,
    wait: Annotated[int, Meta(ge=0, le=30)] = 0,
) -> Any:
    """Return the events after a position (?after=0&most=1000), or wait for some (?wait=30)."""
    loop = call.loop
    for _ in range(int(wait / POLL)):
        if loop.position > after:
            break
        await asyncio.sleep(POLL)
        loop = call.service.loop(loop.name)  # another may have taken its place
    rows = await asyncio.to_thread(
        lambda: list(islice(call.service.store.read(after, loop.number), most))
    )
    found = [{"position": row.position, "event": decode(row.body)} for row in rows]
    return {"events": found, "next": found[-1]["position"] if found else after}


@OPERATIONS.add("GET", f"{ALL}/export", READ, answer=bytes)
async def export(call: Call) -> Answer:
    """Export the log in the library's decision-log format, as one Parquet file."""
    file = await call.service.turns.at_length("asked", export_parquet, call.service, call.loop)
    name = f'attachment; filename="{call.loop.name}.parquet"'.encode()
    kind = b"application/vnd.apache.parquet"
    return Answer(200, b"", kind, [(b"content-disposition", name)], file)


@OPERATIONS.add("POST", f"{ALL}/evaluate", READ, name="Rivals")
async def evaluate(
    call: Call,
    *,
    agents: dict[str, dict[str, Any]],
    most: Annotated[int, Meta(ge=1, description="Events that are read.")] = MOST_COMPARED,
) -> Any:
    """Estimate what other configurations would have earned."""
    found = await call.service.turns.at_length(
        "asked", comparison, call.service, call.loop, agents, most
    )
    return {
        "decisions": found.decisions,
        "method": found.method,
        "configurations": found.table().to_dict("records"),
        "pairs": found.pairs().to_dict("records"),
    }


@OPERATIONS.add("GET", f"{ALL}/state", READ)
async def state(call: Call) -> Any:
    """Show the position of a loop in the log, and a hash of its state."""
    loop = call.loop
    position, held = await call.service.look(loop, lambda: (loop.position, loop.hold()))
    digest = await call.service.turns.in_background(held.digest)
    return {"position": position, "digest": digest}


# Changing


@OPERATIONS.add("PATCH", f"{ALL}/configuration", ADMINISTER)
async def configure(call: Call, body: SettingsChanges, *, relearn: bool = True) -> Any:
    """Change settings; a new model learns from the log, unless ?relearn=false."""
    return asdict(await call.service.configure(call.loop, body, relearn=relearn, **call.by))


@OPERATIONS.add("POST", f"{ALL}/arms", ADMINISTER, name="ArmChanges")
async def change_arms(call: Call, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Any:
    """Add and remove arms."""
    await call.service.change_arms(call.loop, add, remove, **call.by)
    return await arms(call)


@OPERATIONS.add("POST", f"{ALL}/forget", ADMINISTER, name="ForgetRequest")
async def forget(call: Call, *, ids: Sequence[str] = (), person: str | None = None) -> Any:
    """Delete decisions by their ids, or all of a person, and what was learned from them."""
    if not ids and person is None:
        raise ValueError("give the ids of decisions, or a person")
    return {"events": await call.service.forget(call.loop, ids, person, **call.by)}


@OPERATIONS.add("POST", f"{ALL}/reset", ADMINISTER, status=204)
async def reset(call: Call) -> None:
    """Forget what was learned."""
    await call.service.reset(call.loop, **call.by)


@OPERATIONS.add("DELETE", ALL, ADMINISTER, status=204)
async def delete(call: Call) -> None:
    """Delete a loop, and everything that was written about it."""
    await call.service.delete(call.loop.name, **call.by)


@OPERATIONS.add("POST", f"{ALL}/keys", ADMINISTER, name="Rotation", status=201)
async def rotate(call: Call, *, role: Role, grace: Grace = GRACE) -> Any:
    """Issue a key; the old one of this role works for `grace` seconds more."""
    key = await call.service.issue_key(call.loop, role, grace=grace, **call.by)
    return {"role": role, "key": key}


def arm_summary(loop: Loop) -> list[Any]:
    """Return the rewards, open decisions and mean reward of every arm."""
    if loop.learner is None:
        return []
    return loop.arms_summary().rename_axis("arm").reset_index().to_dict("records")


def summary(loop: Loop) -> dict[str, Any]:
    """Return the settings, arms, counts and mean rewards of a loop."""
    whole = loop.tally.whole(loop.ripe)
    return {
        "name": loop.name,
        "created": loop.created,
        "settings": asdict(loop.settings),
        "arms": list(loop.arms),
        "waiting": len(loop.open_decisions),
        "counts": asdict(loop.counts),
        "mean_reward": whole.total / whole.rewards if whole.rewards else None,
        "over_random": whole.interval(),
        "over_holdout": whole.over_holdout(),
        "changes": [each._asdict() for each in loop.noticed_changes()],
    }
