"""The service's own protocol: JSON under /v1/loops/."""

import asyncio
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tsucb.service.alerts import all_alerts, loop_alerts
from tsucb.service.errors import Problem
from tsucb.service.events import Decided, Rewarded, decode
from tsucb.service.export import comparison, export_parquet
from tsucb.service.http import Answer, Call, Operations, Request, check_allowed, json_answer
from tsucb.service.keys import ADMINISTER, CHOOSE, DECIDE, GRACE, LOOK, READ, Holder
from tsucb.service.loop import Loop
from tsucb.service.questions import ONE, Wanted, features_of_arms, flatten
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings, changed

MOST_PLACES = 100  # of a list
POLL = 0.2  # seconds between two looks for events that a client waits for


class NewLoop(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create."""

    name: str
    settings: dict[str, Any] = {}
    arms: list[str] = []


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is to be decided.

    `arms` are the names of those to choose from, or names with features; all that are known if
    absent. `k` asks for a list. `key` is the same in a repeat of the request.
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
    """What was decided: the arm, and the probability of every arm it was chosen from."""

    id: str
    arm: str
    probability: float
    probabilities: dict[str, float]
    arms: list[str] | None = None


class RewardGiven(msgspec.Struct, forbid_unknown_fields=True):
    """A reward; `place` says of which entry of a list, from 0."""

    id: str
    reward: float
    place: int | None = None
    key: str | None = None


class DecisionId(msgspec.Struct, forbid_unknown_fields=True):
    """A decision, by its id."""

    id: str


class ArmChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Arms to be added and removed."""

    add: list[str] = []
    remove: list[str] = []


class EstimateQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A context in which the arms' rewards are to be estimated."""

    context: dict[str, Any] | None = None
    arms: list[str] | None = None


class ServerKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key of the server to be issued; the old one works for `grace` seconds more."""

    grace: Annotated[float, Meta(ge=0, le=30 * GRACE)] = GRACE


class Rotation(ServerKey):
    """A key to be issued; the old one of this role works for `grace` seconds more."""

    role: Literal["choose", "decide", "read", "administer"]


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Decisions to be deleted: by their ids, or all of a person."""

    ids: list[str] = []
    person: str | None = None


class Rivals(msgspec.Struct, forbid_unknown_fields=True):
    """Configurations to be compared on the log, by their names."""

    agents: dict[str, dict[str, Any]]
    most: Annotated[int, Meta(ge=1, description="Events that are looked at.")] = 20_000


class EventsQuery(msgspec.Struct):
    """Which events are wanted, and how many seconds to wait for some."""

    after: Annotated[int, Meta(ge=0)] = 0
    most: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    wait: Annotated[int, Meta(ge=0, le=30)] = 0


class ConfigureQuery(msgspec.Struct):
    """Whether another model learns from the log, or begins with nothing."""

    relearn: bool = True


SETTINGS_SCHEMA = {"$ref": "#/components/schemas/LoopSettings"}
SettingsChanges = Annotated[dict[str, Any], Meta(extra_json_schema=SETTINGS_SCHEMA)]

OPERATIONS = Operations()
ALL = "loops/{loop}"


class Native:
    """Answers requests under /v1."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def problem(self, problem: Problem) -> Answer:
        """Return an error as this protocol has it."""
        body = {"error": {"code": problem.code, "message": str(problem)}}
        return json_answer(body, problem.status, problem.headers)

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        """Find the operation, check the key, and answer."""
        operation, places = OPERATIONS.find(request.method, request.path[1:])
        name = places[0] if places else None
        holder = check_allowed(holder, operation.action, name)
        loop: Any = None if name is None else self.service.loop(name)
        return await operation.perform(Call(self.service, loop, request, holder, places))


# The server


@OPERATIONS.add("GET", "loops", ADMINISTER)
async def list_loops(call: Call) -> Any:
    """List the loops."""
    found = []
    for loop in list(call.service.loops.values()):
        found.append(await call.service.look(loop, partial(summary, loop)))
        await asyncio.sleep(0)  # of many loops, others are answered meanwhile
    return {"loops": found}


@OPERATIONS.add("POST", "loops", ADMINISTER, body=NewLoop, status=201)
async def create(call: Call) -> Any:
    """Create a loop."""
    new: NewLoop = call.body
    settings = changed(LoopSettings(), new.settings)
    who, key = call.holder.name, call.request.key
    keys = await call.service.create(new.name, settings, new.arms, who, key)
    return {"name": new.name, "keys": keys}


@OPERATIONS.add("POST", "keys", ADMINISTER, body=ServerKey, status=201)
async def rotate_server_key(call: Call) -> Any:
    """Issue a key of the server; the old one works for a while."""
    name, grace = call.holder.name, call.body.grace
    return {"key": await call.service.issue_key(None, ADMINISTER, name, grace)}


@OPERATIONS.add("GET", "audit", ADMINISTER)
@OPERATIONS.add("GET", f"{ALL}/audit", READ)
async def audit(call: Call) -> Any:
    """Show the last administrative calls."""
    name = None if call.loop is None else call.loop.name
    records = await asyncio.to_thread(call.service.store.audit, name, 1_000)
    return {"audit": [record._asdict() for record in records]}


@OPERATIONS.add("GET", "alerts", READ)
@OPERATIONS.add("GET", f"{ALL}/alerts", READ)
async def alerts(call: Call) -> Any:
    """Show what somebody should look at now: no rewards, drift, lift, clock, lag, disk."""
    if call.loop is None:
        found = await call.service.turns.in_background(all_alerts, call.service)
    else:
        found = await call.service.look(call.loop, lambda: list(loop_alerts(call.loop)))
    return {"alerts": [each._asdict() for each in found]}


# Deciding


@OPERATIONS.add("POST", f"{ALL}/decide", CHOOSE, body=DecisionRequest, answer=DecisionAnswer)
async def decide(call: Call) -> Any:
    """Choose an arm, or a list of them."""
    asked: DecisionRequest = call.body
    arms, features = asked.arms, None
    if isinstance(arms, dict):
        features = features_of_arms(arms)
        arms = list(arms)
    slots: tuple[Wanted, ...] = ONE
    if asked.k is not None:
        slots = tuple(Wanted(str(place)) for place in range(asked.k))
    event = await call.service.decide(
        call.loop, flatten(asked.context), arms, arm_features=features, slots=slots,
        excluded=asked.exclude, id=asked.id, deferred=asked.deferred, key=asked.key,
        person=asked.person, may_add=call.holder.may(DECIDE, call.loop.name),
    )  # fmt: skip
    first = event.picks[0]
    chances = dict(zip(first.arms, first.chances, strict=True))
    chosen = [pick.arm for pick in event.picks] if first.slot else None
    return DecisionAnswer(event.id, first.arm, chances[first.arm], chances, chosen)


@OPERATIONS.add("POST", f"{ALL}/reward", CHOOSE, body=RewardGiven | list[RewardGiven])
async def reward(call: Call) -> Any:
    """Take one reward, or several: those with an error are left out, the others written at once."""
    several, now = isinstance(call.body, list), call.service.clock()
    given = [
        Rewarded(now, r.id, r.reward, "" if r.place is None else str(r.place), r.key)
        for r in (call.body if several else [call.body])
    ]
    found = await call.service.reward_all(call.loop, given, strict=not several)
    results = [{"result": r} if isinstance(r, str) else {"error": str(r)} for r in found]
    return {"results": results} if several else results[0]


@OPERATIONS.add("POST", f"{ALL}/activate", CHOOSE, body=DecisionId)
async def activate(call: Call) -> Any:
    """Put a deferred decision to use."""
    return {"result": await call.service.activate(call.loop, call.body.id)}


@OPERATIONS.add("POST", f"{ALL}/estimates", LOOK, body=EstimateQuestion)
async def estimates(call: Call) -> Any:
    """Estimate the arms' rewards in a context; decide nothing."""
    loop, asked = call.loop, call.body
    arms = list(loop.arms) if asked.arms is None else asked.arms
    unknown = loop.unknown(arms)
    if unknown or not arms:
        raise ValueError(f"there is no arm {unknown[0]!r}" if unknown else "there are no arms")
    context = flatten(asked.context)
    pick = await call.service.look(loop, partial(loop.propose, context, arms))
    event = Decided(0.0, "", context, [pick], *loop.settings.rule_names())
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
    """Explain a past decision: why it was made, and what became of it."""
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
        "waiting": call.id in call.loop.waiting,
        "rewards": rewards,
    }


@OPERATIONS.add("GET", f"{ALL}/events", READ, query=EventsQuery)
async def events_after(call: Call) -> Any:
    """Return the events after a position (?after=0&most=1000), or wait for some (?wait=30)."""
    loop, after, most = call.loop, call.query.after, call.query.most
    for _ in range(int(call.query.wait / POLL)):
        if loop.position > after:
            break
        await asyncio.sleep(POLL)
        loop = call.service.loop(loop.name)  # which may be another by now
    logged = await asyncio.to_thread(
        lambda: list(islice(call.service.store.read(after, loop.number), most))
    )
    found = [{"position": each.position, "event": decode(each.body)} for each in logged]
    return {"events": found, "next": found[-1]["position"] if found else after}


@OPERATIONS.add("GET", f"{ALL}/export", READ)
async def export(call: Call) -> Answer:
    """Export the log in the library's decision-log format, as one Parquet file."""
    file = await call.service.turns.in_background(export_parquet, call.service, call.loop)
    name = f'attachment; filename="{call.loop.name}.parquet"'.encode()
    kind = b"application/vnd.apache.parquet"
    return Answer(200, b"", kind, [(b"content-disposition", name)], file)


@OPERATIONS.add("POST", f"{ALL}/evaluate", READ, body=Rivals)
async def evaluate(call: Call) -> Any:
    """Estimate what other configurations would have earned."""
    found = await call.service.turns.in_background(
        comparison, call.service, call.loop, call.body.agents, call.body.most
    )
    return {
        "decisions": found.decisions,
        "method": found.method,
        "configurations": found.table().to_dict("records"),
        "pairs": found.pairs().to_dict("records"),
    }


@OPERATIONS.add("GET", f"{ALL}/state", READ)
async def state(call: Call) -> Any:
    """Show the position of a loop in the log, and a hash of what it knows."""
    loop = call.loop
    position, held = await call.service.look(loop, lambda: (loop.position, loop.hold()))
    digest = await call.service.turns.in_background(held.digest)
    return {"position": position, "digest": digest}


# Changing


@OPERATIONS.add(
    "PATCH", f"{ALL}/configuration", ADMINISTER, body=SettingsChanges, query=ConfigureQuery
)
async def configure(call: Call) -> Any:
    """Change some settings; another model learns from the log, unless ?relearn=false."""
    who, key = call.holder.name, call.request.key
    settings = await call.service.configure(call.loop, call.body, who, call.query.relearn, key=key)
    return asdict(settings)


@OPERATIONS.add("POST", f"{ALL}/arms", ADMINISTER, body=ArmChanges)
async def change_arms(call: Call) -> Any:
    """Add and remove arms."""
    add, remove, who = call.body.add, call.body.remove, call.holder.name
    await call.service.change_arms(call.loop, add, remove, who, key=call.request.key)
    return await arms(call)


@OPERATIONS.add("POST", f"{ALL}/forget", ADMINISTER, body=ForgetRequest)
async def forget(call: Call) -> Any:
    """Delete decisions, and what was learned from them."""
    ids, person = call.body.ids, call.body.person
    if not ids and person is None:
        raise ValueError("give the ids of decisions, or a person")
    who, key = call.holder.name, call.request.key
    return {"events": await call.service.forget(call.loop, ids, person, who, key)}


@OPERATIONS.add("POST", f"{ALL}/reset", ADMINISTER, status=204)
async def reset(call: Call) -> None:
    """Forget what was learned."""
    await call.service.reset(call.loop, call.holder.name, call.request.key)


@OPERATIONS.add("DELETE", ALL, ADMINISTER, status=204)
async def delete(call: Call) -> None:
    """Delete a loop with everything that was ever written about it."""
    await call.service.delete(call.loop.name, call.holder.name)


@OPERATIONS.add("POST", f"{ALL}/keys", ADMINISTER, body=Rotation, status=201)
async def rotate(call: Call) -> Any:
    """Issue a key; the old one of its role works for a while."""
    role, grace = call.body.role, call.body.grace
    key = await call.service.issue_key(call.loop, role, call.holder.name, grace)
    return {"role": role, "key": key}


def arm_summary(loop: Loop) -> list[Any]:
    """Return the pulls, open decisions and mean reward of every arm."""
    if loop.learner is None:
        return []
    return loop.arms_summary().rename_axis("arm").reset_index().to_dict("records")


def summary(loop: Loop) -> dict[str, Any]:
    """Return a loop in short."""
    whole = loop.tally.whole(loop.ripe)
    return {
        "name": loop.name,
        "created": loop.created,
        "settings": asdict(loop.settings),
        "arms": list(loop.arms),
        "waiting": len(loop.waiting),
        "counts": asdict(loop.counts),
        "mean_reward": whole.total / whole.rewards if whole.rewards else None,
        "over_random": whole.interval(),
        "over_holdout": whole.over_holdout(),
        "changes": [each._asdict() for each in loop.noticed_changes()],
    }
