"""The service's own protocol: JSON under /v1/loops/."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tsucb.agent.decision import Explanation
from tsucb.service.events import Decided, Features, Pick, Rewarded
from tsucb.service.export import comparison, exported
from tsucb.service.features import flat
from tsucb.service.http import Answer, HttpProblem, Request, allowed, encode, json_answer
from tsucb.service.keys import ADMINISTER, CHOOSE, DECIDE, GRACE, LOOK, READ, Holder
from tsucb.service.loop import Loop
from tsucb.service.service import GivenReward, Service
from tsucb.service.settings import LoopSettings, changed
from tsucb.service.slots import ONE, Wanted

MOST_PLACES = 100  # of a list


class NewLoop(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create."""

    name: str
    settings: dict[str, Any] = {}
    arms: list[str] = []


class Question(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
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


Grace = Annotated[float, Meta(ge=0, le=30 * GRACE, description="Seconds for the old key.")]


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """A key to be issued; the old one of this role works for `grace` seconds more."""

    role: Literal["choose", "decide", "read", "administer"]
    grace: Grace = GRACE


class ServerKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key of the server to be issued; the old one works for `grace` seconds more."""

    grace: Grace = GRACE


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Decisions to be deleted: by their ids, or all of a person."""

    ids: list[str] = []
    person: str | None = None


class Rivals(msgspec.Struct, forbid_unknown_fields=True):
    """Configurations to be compared on the log, by their names."""

    agents: dict[str, dict[str, Any]]
    most: Annotated[int, Meta(ge=1, description="Events that are looked at.")] = 20_000


_question = msgspec.json.Decoder(Question).decode
_reward = msgspec.json.Decoder(RewardGiven | list[RewardGiven]).decode

Operation = Callable[[Loop, Request, Holder], Awaitable[Answer]]


class Native:
    """Answers requests under /v1."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # By method and the word behind the loop's name: which key it takes, and what it does.
        self.operations: dict[tuple[str, str], tuple[str, Operation]] = {
            ("POST", "decide"): (CHOOSE, self.decide),
            ("POST", "reward"): (CHOOSE, self.reward),
            ("POST", "activate"): (CHOOSE, self.activate),
            ("POST", "estimates"): (LOOK, self.estimates),
            ("GET", ""): (READ, self.show),
            ("DELETE", ""): (ADMINISTER, self.delete),
            ("GET", "configuration"): (READ, self.configuration),
            ("PATCH", "configuration"): (ADMINISTER, self.configure),
            ("GET", "arms"): (LOOK, self.arms),
            ("POST", "arms"): (ADMINISTER, self.change_arms),
            ("GET", "decisions"): (READ, self.explain),
            ("POST", "forget"): (ADMINISTER, self.forget),
            ("POST", "reset"): (ADMINISTER, self.reset),
            ("POST", "keys"): (ADMINISTER, self.rotate),
            ("GET", "audit"): (READ, self.audit),
            ("GET", "export"): (READ, self.export),
            ("POST", "evaluate"): (READ, self.evaluate),
            ("GET", "state"): (READ, self.state),
        }

    def problem(self, problem: HttpProblem) -> Answer:
        """Return an error as this protocol has it."""
        body = {"error": {"code": problem.code, "message": problem.message}}
        return json_answer(body, problem.status, problem.headers)

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        """Find the operation, check the key, and answer."""
        path = request.path
        if len(path) == 2 and path[1] in ("loops", "keys", "audit"):
            return await self.whole_server(request, allowed(holder, ADMINISTER, None))
        if len(path) < 2 or path[1] != "loops" or len(path) > 5:
            raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
        word = path[3] if len(path) > 3 else ""
        found = self.operations.get((request.method, word))
        if found is None or (len(path) == 5 and word != "decisions"):
            methods = [m for m, each in self.operations if each == word]
            if not methods:
                raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
            raise HttpProblem(405, "MethodNotAllowed", f"this is for {' and '.join(methods)}")
        role, operation = found
        holder = allowed(holder, role, path[2])
        return await operation(self.service.loop(path[2]), request, holder)

    async def whole_server(self, request: Request, holder: Holder) -> Answer:
        """List the loops or make one, issue a key of the server, or show the whole audit trail."""
        operation = request.method, request.path[1]
        if operation == ("POST", "keys"):
            rotation = msgspec.json.decode(request.body or b"{}", type=ServerKey)
            return json_answer(
                {
                    "key": await self.service.issue_key(
                        None, ADMINISTER, holder.name, rotation.grace
                    )
                },
                201,
            )
        if operation == ("GET", "audit"):
            return await self.audit(None, request, holder)
        if operation == ("GET", "loops"):
            loops = list(self.service.loops.values())
            found = [await self.service.look(loop, partial(summary, loop)) for loop in loops]
            return json_answer({"loops": found})
        if operation != ("POST", "loops"):
            raise HttpProblem(405, "MethodNotAllowed", "this path is not for this method")
        new = msgspec.json.decode(request.body, type=NewLoop)
        settings = changed(LoopSettings(), new.settings)
        keys = await self.service.create(new.name, settings, new.arms, holder.name)
        return json_answer({"name": new.name, "keys": keys}, 201)

    # Deciding

    async def decide(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Choose an arm, or a list of them."""
        asked = _question(request.body)
        arms, features = named_arms(asked.arms)
        slots: tuple[Wanted, ...] = ONE
        if asked.k is not None:
            slots = tuple(Wanted(str(place)) for place in range(asked.k))
        event = await self.service.decide(
            loop, flat(asked.context), arms, arm_features=features, excluded=asked.exclude,
            slots=slots, id=asked.id, deferred=asked.deferred, key=asked.key, person=asked.person,
            may_add=holder.may(DECIDE, loop.name),
        )  # fmt: skip
        return Answer(200, encode(choice(event)))

    async def reward(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Take one reward, or several."""
        given = _reward(request.body)
        if isinstance(given, RewardGiven):
            result = await self.service.reward(
                loop, given.id, given.reward, slot=slot_of(given), key=given.key
            )
            return Answer(200, encode({"result": result}))
        # Those with an error are left out; the others are written together, all or none.
        found = await self.service.reward_all(
            loop, [GivenReward(r.id, slot_of(r), r.reward, r.key) for r in given]
        )
        results = [{"result": r} if isinstance(r, str) else {"error": str(r)} for r in found]
        return json_answer({"results": results})

    async def activate(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Put a deferred decision to use."""
        named = msgspec.json.decode(request.body, type=DecisionId)
        return json_answer({"result": await self.service.activate(loop, named.id)})

    async def estimates(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Estimate the arms' rewards in a context; decide nothing."""
        asked = msgspec.json.decode(request.body or b"{}", type=EstimateQuestion)
        arms = list(loop.arms) if asked.arms is None else asked.arms
        unknown = loop.unknown(arms)
        if unknown or not arms:
            raise ValueError(f"there is no arm {unknown[0]!r}" if unknown else "there are no arms")
        pick = await self.service.look(loop, partial(loop.propose, flat(asked.context), arms))
        return json_answer({"arms": arm_rows(pick, "", "")})

    # Looking

    async def show(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Show a loop with its settings, arms and counts."""
        return json_answer(await self.service.look(loop, partial(summary, loop)))

    async def configuration(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Show the settings of a loop."""
        return json_answer(as_json(loop.settings))

    async def arms(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """List the arms of a loop, with their pulls and mean rewards."""
        return json_answer({"arms": await self.service.look(loop, partial(arm_summary, loop))})

    async def explain(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Explain a past decision: why it was made, and what became of it."""
        if len(request.path) != 5:
            raise HttpProblem(404, "NotFound", "give the id of the decision: /decisions/ID")
        id = request.path[4]
        decision = await self.service.decision(loop, id)
        history = await self.service.history(loop, id)
        return json_answer(
            {
                **explained(decision),
                "waiting": id in loop.waiting,
                "rewards": [
                    {"time": e.time, "reward": e.value, "place": e.slot or None}
                    for e in history
                    if isinstance(e, Rewarded)
                ],
            }
        )

    async def audit(self, loop: Loop | None, request: Request, holder: Holder) -> Answer:
        """Show the last administrative calls."""
        name = None if loop is None else loop.name
        records = await asyncio.to_thread(self.service.store.audit, name, 1_000)
        return json_answer({"audit": [record._asdict() for record in records]})

    async def export(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Export the log in the library's decision-log format, as one Parquet file."""
        file = await self.service.turns.in_background(exported, self.service, loop)
        name = f'attachment; filename="{loop.name}.parquet"'.encode()
        kind = b"application/vnd.apache.parquet"
        return Answer(200, b"", kind, [(b"content-disposition", name)], file)

    async def evaluate(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Estimate what other configurations would have earned."""
        rivals = msgspec.json.decode(request.body, type=Rivals)
        found = await self.service.turns.in_background(
            comparison, self.service, loop, rivals.agents, rivals.most
        )
        return json_answer(found)

    async def state(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Show the position of a loop in the log, and a hash of what it knows."""
        position, held = await self.service.look(loop, lambda: (loop.position, loop.hold()))
        digest = await self.service.turns.in_background(held.digest)
        return json_answer({"position": position, "digest": digest})

    # Changing

    async def configure(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Change some settings; another model learns from the log, unless ?relearn=false."""
        changes = msgspec.json.decode(request.body, type=dict[str, Any])
        relearn = request.query.get("relearn", "true")
        if relearn not in ("true", "false"):
            raise ValueError(f"relearn is true or false, not {relearn[:40]!r}")
        settings = await self.service.configure(loop, changes, holder.name, relearn == "true")
        return json_answer(as_json(settings))

    async def change_arms(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Add and remove arms."""
        changes = msgspec.json.decode(request.body, type=ArmChanges)
        await self.service.change_arms(loop, changes.add, changes.remove, holder.name)
        return await self.arms(loop, request, holder)

    async def forget(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Delete decisions, and what was learned from them."""
        asked = msgspec.json.decode(request.body, type=ForgetRequest)
        if not asked.ids and asked.person is None:
            raise ValueError("give the ids of decisions, or a person")
        deleted = await self.service.forget(loop, asked.ids, asked.person, holder.name)
        return json_answer({"events": deleted})

    async def reset(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Forget what was learned."""
        await self.service.reset(loop, holder.name)
        return Answer(204)

    async def delete(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Delete a loop with everything that was ever written about it."""
        await self.service.delete(loop.name, holder.name)
        return Answer(204)

    async def rotate(self, loop: Loop, request: Request, holder: Holder) -> Answer:
        """Issue a key; the old one of its role works for a while."""
        asked = msgspec.json.decode(request.body, type=Rotation)
        key = await self.service.issue_key(loop, asked.role, holder.name, asked.grace)
        return json_answer({"role": asked.role, "key": key}, 201)


def named_arms(
    given: list[str] | dict[str, dict[str, Any] | None] | None,
) -> tuple[list[str] | None, dict[str, Features] | None]:
    """Return the names of arms, and the features of those that have any."""
    if not isinstance(given, dict):
        return given, None
    features = {name: found for name, each in given.items() if (found := flat(each)) is not None}
    return list(given), features or None


def choice(event: Decided) -> DecisionAnswer:
    """Return a decision as an answer."""
    first = event.picks[0]
    chances = dict(zip(first.arms, first.chances, strict=True))
    arms = [pick.arm for pick in event.picks] if first.slot else None
    return DecisionAnswer(event.id, first.arm, chances[first.arm], chances, arms)


def slot_of(given: RewardGiven) -> str:
    """Return the slot that a reward is for."""
    return "" if given.place is None else str(given.place)


def arm_summary(loop: Loop) -> list[dict[str, Any]]:
    """Return the pulls, open decisions and mean reward of every arm."""
    rows: list[dict[str, Any]] = []
    if loop.learner is not None:
        for name, pulls, waiting, mean in loop.arms_summary().itertuples():
            known = None if math.isnan(mean) else mean
            rows.append({"arm": name, "pulls": pulls, "open": waiting, "mean_reward": known})
    return rows


def summary(loop: Loop) -> dict[str, Any]:
    """Return a loop in short."""
    whole = loop.tally.whole(loop.ripe)
    return {
        "name": loop.name,
        "created": loop.created,
        "settings": as_json(loop.settings),
        "arms": list(loop.arms),
        "waiting": len(loop.waiting),
        "counts": {name: getattr(loop.counts, name) for name in loop.counts.__struct_fields__},
        "mean_reward": whole.total / whole.rewards if whole.rewards else None,
    }


def as_json(settings: LoopSettings) -> dict[str, Any]:
    """Return all settings, also those that nobody has changed."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def arm_rows(pick: Pick, policy: str, target_name: str) -> list[dict[str, Any]]:
    """Return what the policy saw of every arm."""
    seen = Explanation.of(tuple(pick.arms), pick.arm, policy, target_name, pick.seen)
    numbers = {"mean": seen.mean, "std": seen.std, "estimate": seen.estimate, "radius": seen.radius}
    rows = []
    for i, arm in enumerate(pick.arms):
        row = {name: finite(values[i]) for name, values in numbers.items()}
        rows.append({"arm": arm, **row, "ratio": finite(seen.ratio[i])})
    return rows


def explained(event: Decided) -> dict[str, Any]:
    """Return a decision, and why it was made."""
    picks = []
    for pick in event.picks:
        seen = Explanation.of(
            tuple(pick.arms), pick.arm, event.policy, event.target_name, pick.seen
        )
        rows = arm_rows(pick, event.policy, event.target_name)
        for row, chance in zip(rows, pick.chances, strict=True):
            row["probability"] = chance
        picks.append(
            {
                "place": pick.slot or None,
                "arm": pick.arm,
                "favourite": pick.favourite,
                "target": finite(seen.target),
                "alpha": finite(seen.alpha),
                "arms": rows,
                "text": str(seen),
            }
        )
    return {
        "id": event.id,
        "time": event.time,
        "policy": event.policy,
        "context": event.context,
        "deferred": event.deferred,
        "person": event.person,
        "picks": picks,
    }


def finite(number: float) -> float | None:
    """Return a number as JSON has it: None where it is not finite."""
    return float(number) if math.isfinite(number) else None
