"""The protocol of Azure Personalizer, in all three generations, for the clients that speak it.

    /personalizer/v1.0/…
    /personalizer/v1.1-preview.N/…
    /personalizer/…?api-version=2022-09-01-preview

Which loop is meant says the key. Words of theirs in words of ours: action = arm, event = decision,
exploration percentage = floor, learning settings = policy, apprentice mode = the same.
"""

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tsucb.service.evaluations import Evaluation, Evaluations, importances
from tsucb.service.features import flat
from tsucb.service.http import Answer, Headers, Problem, Request, allowed, encode, json_answer
from tsucb.service.keys import ADMINISTER, DECIDE, Holder
from tsucb.service.loop import LATE, Loop
from tsucb.service.service import NotFound, Service, Wanted
from tsucb.service.settings import LoopSettings, changed

MOST_ACTIONS = 50
LEAST_WAIT, LONGEST_WAIT = 5.0, 172_800.0  # seconds
REWARDS = (-1.0, 1.0)
FOREVER = -1  # days for which logs are kept
CURRENT = "2022-09-01-preview"
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
EXTRAS = "personalizer"  # the document with settings that have no counterpart
PLAIN_EXTRAS: dict[str, Any] = {
    "modelExportFrequency": "PT5M",
    "modelRetrainDays": 0,
    "logMirrorEnabled": False,
    "logMirrorSasUri": "",
    "isAutoOptimizationEnabled": False,
}


class Action(msgspec.Struct):
    """An arm with its features."""

    id: str
    features: list[dict[str, Any]] = []


class SlotRequest(msgspec.Struct, rename="camel"):
    """A place to be filled. One client's manual calls its features positionFeatures."""

    id: str
    features: list[dict[str, Any]] | None = None
    position_features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None
    baseline_action: str | None = None


class RankRequest(msgspec.Struct, rename="camel"):
    """What is to be ranked; with `slots` for several places."""

    actions: list[Action]
    context_features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None
    event_id: str | None = None
    defer_activation: bool | None = False
    slots: list[SlotRequest] | None = None


class Reward(msgspec.Struct):
    """The reward of an event."""

    value: float


class SlotReward(msgspec.Struct, rename="camel"):
    """The reward of one slot."""

    slot_id: str
    value: float


class SlotRewards(msgspec.Struct):
    """The rewards of several slots."""

    reward: list[SlotReward]


class PolicyContract(msgspec.Struct):
    """Learning settings."""

    name: str
    arguments: str


class EvaluationContract(msgspec.Struct, rename="camel"):
    """An evaluation to be made."""

    name: str
    start_time: str
    end_time: str
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: str
    policy_name: str


class Ranked(msgspec.Struct):
    """An action and its probability."""

    id: str
    probability: float


class RankResponse(msgspec.Struct, rename="camel"):
    """The actions in order, and which of them is to be used."""

    ranking: list[Ranked]
    event_id: str
    reward_action_id: str


_rank = msgspec.json.Decoder(RankRequest).decode
_reward = msgspec.json.Decoder(Reward).decode

Operation = Callable[[Loop, Request, str, "Version"], Awaitable[Answer]]


class Version(NamedTuple):
    """Which generation a client speaks."""

    name: str

    @property
    def current(self) -> bool:
        """Whether it is that of 2022, where evaluations look different."""
        return self.name == CURRENT


class Route(NamedTuple):
    """What a path does: who may, the error it makes of bad input, and the function."""

    role: str
    code: str
    operation: Operation


class Personalizer:
    """Answers requests under /personalizer."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.evaluations = Evaluations(service)
        put_evaluation = Route(ADMINISTER, "InvalidEvaluationContract", self.put_evaluation)
        routes = {
            ("POST", "rank"): Route(DECIDE, "InvalidRankRequest", self.rank),
            ("POST", "multislot/rank"): Route(DECIDE, "InvalidRankRequest", self.rank_slots),
            ("POST", "events/*/reward"): Route(DECIDE, "InvalidRewardRequest", self.reward),
            ("POST", "events/*/activate"): Route(DECIDE, "InvalidEventIdToActivate", self.activate),
            ("POST", "multislot/events/*/reward"): Route(
                DECIDE, "InvalidRewardRequest", self.reward_slots
            ),
            ("POST", "multislot/events/*/activate"): Route(
                DECIDE, "InvalidEventIdToActivate", self.activate
            ),
            ("GET", "configurations/service"): Route(ADMINISTER, "BadRequest", self.configuration),
            ("PUT", "configurations/service"): Route(
                ADMINISTER, "InvalidServiceConfiguration", self.configure
            ),
            ("GET", "configurations/policy"): Route(ADMINISTER, "BadRequest", self.policy),
            ("PUT", "configurations/policy"): Route(
                ADMINISTER, "InvalidPolicyConfiguration", self.set_policy
            ),
            ("DELETE", "configurations/policy"): Route(ADMINISTER, "BadRequest", self.reset_policy),
            ("POST", "configurations/applyFromEvaluation"): Route(
                ADMINISTER, "LearningSettingsNotFound", self.apply
            ),
            ("GET", "model"): Route(ADMINISTER, "BadRequest", self.model),
            ("PUT", "model"): Route(ADMINISTER, "InvalidModelImportFormat", self.set_model),
            ("DELETE", "model"): Route(ADMINISTER, "ModelResetFailed", self.reset_model),
            ("GET", "model/properties"): Route(ADMINISTER, "BadRequest", self.model_properties),
            ("GET", "logs/properties"): Route(ADMINISTER, "BadRequest", self.log_properties),
            ("DELETE", "logs"): Route(ADMINISTER, "BadRequest", self.delete_logs),
            ("POST", "logs/interactions"): Route(DECIDE, "BadRequest", self.refuse_log),
            ("POST", "logs/observations"): Route(DECIDE, "BadRequest", self.refuse_log),
            ("GET", "evaluations"): Route(ADMINISTER, "BadRequest", self.list_evaluations),
            ("POST", "evaluations"): put_evaluation,
            ("PUT", "evaluations/*"): put_evaluation,
            ("GET", "evaluations/*"): Route(ADMINISTER, "InvalidRequest", self.get_evaluation),
            ("DELETE", "evaluations/*"): Route(ADMINISTER, "BadRequest", self.delete_evaluation),
            ("GET", "featureImportances"): Route(ADMINISTER, "BadRequest", self.list_importances),
            ("PUT", "featureImportances/*"): Route(
                ADMINISTER, "InvalidEvaluationContract", self.put_importance
            ),
            ("GET", "featureImportances/*"): Route(ADMINISTER, "BadRequest", self.get_importance),
            ("DELETE", "featureImportances/*"): Route(
                ADMINISTER, "BadRequest", self.delete_importance
            ),
        }
        # By method and the path as a tuple, with "*" for the id.
        self.routes = {(m, tuple(path.split("/"))): r for (m, path), r in routes.items()}

    def problem(self, problem: Problem) -> Answer:
        """An error as this protocol has it."""
        code = WORDS.get(problem.code, problem.code)
        error: dict[str, Any] = {
            "code": code,
            "message": problem.message,
            "target": None,
            "details": [],
            "innerError": None,
        }
        headers = [*problem.headers, (b"x-ms-error-code", code.encode())]
        return json_answer({"error": error}, problem.status, headers)

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        """Find out what is asked for, in which generation, and who asks."""
        version, words = generation(request)
        id, pattern = "", tuple(words)
        place = {"events": 1, "evaluations": 1, "featureImportances": 1, "multislot": 2}.get(
            words[0] if words else "", 0
        )
        if place and len(words) > place:
            id, pattern = words[place], (*words[:place], "*", *words[place + 1 :])
        route = self.routes.get((request.method, pattern))
        if route is None:
            if any(path == pattern for _, path in self.routes):
                raise Problem(405, "BadRequest", f"{request.method} is not for this path")
            raise Problem(404, "ResourceNotFound", "there is no such operation of Personalizer")
        if holder is None:
            raise Problem(
                401,
                "Unauthorized",
                "give a key of a loop in Ocp-Apim-Subscription-Key; this is none",
            )
        if holder.loop is None:
            raise Problem(403, "OperationNotAllowed", "give a key of a loop, not the server's")
        allowed(holder, route.role, holder.loop)
        loop = self.service.loop(holder.loop)
        if not id and "*" in pattern:
            raise Problem(400, route.code, "the id is empty")
        try:
            answer = await route.operation(loop, request, id, version)
        except NotFound as error:
            raise Problem(404, "ResourceNotFound", str(error)) from None
        except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise Problem(400, route.code, str(error)) from None
        if answer.status == 204:
            answer = answer._replace(headers=[*answer.headers, *original_url(request, words)])
        return answer

    # Events

    async def rank(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Rank the actions."""
        asked = _rank(request.body)
        event = await self._decide(loop, request, asked, (Wanted(),))
        pick = event.picks[0]
        chances = dict(zip(pick.arms, pick.chances, strict=True))
        ranking = [Ranked(arm, chances.get(arm, 0.0)) for arm in event.ranking or pick.arms]
        return Answer(201, encode(RankResponse(ranking, event.id, pick.arm)))

    async def rank_slots(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Choose an action for every slot."""
        asked = _rank(request.body)
        if not asked.slots:
            raise ValueError("slots are missing; give at least one")
        if len(asked.slots) > len(asked.actions):
            raise ValueError("there are more slots than actions; give at least as many actions")
        names = [slot.id for slot in asked.slots]
        if len(set(names)) < len(names) or not all(names):
            raise ValueError("every slot needs an id of its own")
        slots = []
        for slot in asked.slots:
            features = flat(slot.features or slot.position_features)
            excluded = slot.excluded_actions or []
            if slot.baseline_action is not None and slot.baseline_action in excluded:
                raise ValueError(f"the baseline action of slot {slot.id!r} is excluded from it")
            slots.append(Wanted(slot.id, features, excluded, slot.baseline_action))
        event = await self._decide(loop, request, asked, tuple(slots))
        found = [{"id": pick.slot, "rewardActionId": pick.arm} for pick in event.picks]
        return json_answer({"slots": found, "eventId": event.id}, 201)

    async def _decide(
        self, loop: Loop, request: Request, asked: RankRequest, slots: tuple[Wanted, ...]
    ) -> Any:
        if not 1 <= len(asked.actions) <= MOST_ACTIONS:
            raise ValueError(f"there must be 1 to {MOST_ACTIONS} actions, not {len(asked.actions)}")
        arms = [action.id for action in asked.actions]
        if len(set(arms)) < len(arms):
            raise ValueError("every action needs an id of its own")
        features = {}
        for action in asked.actions:
            if (found := flat(action.features)) is not None:
                features[action.id] = found
        return await self.service.decide(
            loop,
            flat(asked.context_features),
            arms,
            arm_features=features or None,
            excluded=asked.excluded_actions or (),
            slots=slots,
            id=asked.event_id or None,
            deferred=bool(asked.defer_activation),
            key=repeat_key(request),
            ranked=True,
        )

    async def reward(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Take the reward of an event; a late one is logged."""
        value = _reward(request.body).value
        check_reward(value)
        await self.service.reward(loop, id, value, key=repeat_key(request))
        return Answer(204)

    async def reward_slots(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Take the rewards of slots."""
        given = msgspec.json.decode(request.body, type=SlotRewards).reward
        if not given:
            raise ValueError("there is no reward; give at least one slotId with its value")
        for each in given:
            check_reward(each.value)
        values = [(each.slot_id, each.value) for each in given]
        await self.service.rewards(loop, id, values, key=repeat_key(request))
        return Answer(204)

    async def activate(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Put a deferred event to use, within the wait."""
        try:
            found = await self.service.activate(loop, id)
        except NotFound as error:
            raise ValueError(str(error)) from None
        if found == LATE and id not in loop.waiting:
            decided = await self.service.decision(loop, id)
            if decided.deferred and loop.now >= decided.time + loop.settings.reward_wait:
                raise ValueError(
                    f"the wait for event {id!r} is over; it can no longer be activated"
                )
        return Answer(204)

    # Configuration

    async def configuration(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """The settings in Personalizer's words."""
        return json_answer(self._configuration(loop))

    def _configuration(self, loop: Loop) -> dict[str, Any]:
        settings, whole = loop.settings, loop.tally.whole()
        modes = {ours: theirs for theirs, ours in MODES.items()}
        metrics = {
            "numberOfEvents": whole.rewards,
            "sumOfRewards": whole.total,
            "numberOfImitatedEvents": whole.imitated,
            "sumOfImitatedRewards": whole.imitated_total,
        }
        return {
            "rewardWaitTime": duration(settings.reward_wait),
            "defaultReward": settings.default_reward or 0.0,
            "rewardAggregation": "earliest" if settings.aggregation == "first" else "sum",
            "explorationPercentage": settings.exploration,
            **PLAIN_EXTRAS,
            "lastConfigurationEditDate": timestamp(loop.created),
            "autoOptimizationFrequency": "P7D",
            "autoOptimizationStartDate": timestamp(loop.created),
            **self._extras(loop),
            "logRetentionDays": settings.retention_days or FOREVER,
            "learningMode": modes[settings.mode],
            "latestApprenticeModeMetrics": {
                **metrics,
                "startTime": timestamp(loop.created),
                "lastProcessedEventTime": timestamp(loop.now),
                "lastBatchMetrics": metrics,
            },
        }

    def _extras(self, loop: Loop) -> dict[str, Any]:
        found = self.service.store.documents(loop.name, EXTRAS).get(EXTRAS)
        return {} if found is None else msgspec.json.decode(found, type=dict[str, Any])

    async def configure(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Change settings; what is not given stays."""
        given = msgspec.json.decode(request.body, type=dict[str, Any])
        # Its clients report what went well, and leave the rest to the default reward.
        changes: dict[str, Any] = {"reward_range": REWARDS, "learn_early": False}
        if "rewardWaitTime" in given:
            seconds = seconds_of(given["rewardWaitTime"])
            if not LEAST_WAIT <= seconds <= LONGEST_WAIT:
                raise Problem(
                    400, "InvalidRewardWaitTime", "rewardWaitTime must be 5 seconds to 2 days"
                )
            changes["reward_wait"] = seconds
        if "defaultReward" in given:
            changes["default_reward"] = given["defaultReward"]
            check_reward(float(given["defaultReward"]))
        if "rewardAggregation" in given:
            words = {"earliest": "first", "sum": "sum"}
            if given["rewardAggregation"] not in words:
                raise ValueError("rewardAggregation is earliest or sum")
            changes["aggregation"] = words[given["rewardAggregation"]]
        if "explorationPercentage" in given:
            changes["exploration"] = given["explorationPercentage"]
        if given.get("learningMode") is not None:
            if given["learningMode"] not in MODES:
                raise Problem(
                    400,
                    "InvalidLearningModeServiceConfiguration",
                    f"learningMode is one of {', '.join(MODES)}",
                )
            changes["mode"] = MODES[given["learningMode"]]
        if given.get("logMirrorEnabled") or given.get("isAutoOptimizationEnabled"):
            raise ValueError(
                "mirroring logs to Azure and automatic optimisation are not offered here; see the "
                "migration page for what to use instead"
            )
        if (days := given.get("logRetentionDays")) is not None:
            if type(days) is not int or (days < 1 and days != FOREVER):
                raise Problem(
                    400, "InvalidLogRetentionDays", "logRetentionDays is at least 1, or -1 for ever"
                )
            changes["retention_days"] = None if days == FOREVER else days
        changed(loop.settings, changes)  # complain before anything is written
        extras = {name: given[name] for name in PLAIN_EXTRAS if given.get(name) is not None}
        extras = {**self._extras(loop), **extras}
        extras["lastConfigurationEditDate"] = timestamp(self.service.clock())
        await self.service.configure(loop, changes, "personalizer")
        await asyncio.to_thread(
            self.service.store.put_document, loop.name, EXTRAS, EXTRAS, encode(extras)
        )
        return json_answer(self._configuration(loop))

    async def policy(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """The learning settings: the name of the policy, and what else decides how it learns."""
        return json_answer(policy_contract(loop.settings))

    async def set_policy(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Change the learning settings."""
        contract = msgspec.json.decode(request.body, type=PolicyContract)
        changes = learning_settings(contract.arguments)
        return json_answer(
            policy_contract(await self.service.configure(loop, changes, "personalizer"))
        )

    async def reset_policy(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """The learning settings that a loop begins with."""
        plain = LoopSettings()
        changes = {name: getattr(plain, name) for name in LEARNING}
        return json_answer(
            policy_contract(await self.service.configure(loop, changes, "personalizer"))
        )

    async def apply(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Take over the learning settings of an evaluation."""
        asked = msgspec.json.decode(request.body, type=PolicyReference)
        evaluation = self.evaluations.get(loop, asked.evaluation_id)
        found = [p for p in evaluation.policies if p.name == asked.policy_name]
        if not found or found[0].source in ("Baseline", "Random"):
            raise Problem(
                404,
                "LearningSettingsNotFound",
                f"the evaluation has no learning settings {asked.policy_name!r} to apply",
            )
        if found[0].source != "Online":
            changes = learning_settings(found[0].arguments)
            await self.service.configure(loop, changes, "personalizer")
        return Answer(204)

    # Model and logs

    async def model(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """What was learned, as a file of this library."""
        if loop.agent is None:
            raise NotFound("there is no model yet; nothing was ranked")
        return Answer(200, loop.agent.to_bytes(), b"application/octet-stream")

    async def set_model(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Take over a file that `model` returned."""
        if not request.body.startswith(b"tsucb "):
            raise ValueError(
                "only models exported from this service can be imported, not Vowpal Wabbit's"
            )
        await self.service.import_model(loop, request.body, "personalizer")
        return Answer(204)

    async def reset_model(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Forget what was learned."""
        await self.service.reset(loop, "personalizer")
        return Answer(204)

    async def model_properties(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """When the model was made, and when it learned last."""
        found = {"creationTime": loop.created, "lastModifiedTime": loop.now}
        return json_answer({name: timestamp(time) for name, time in found.items()})

    async def log_properties(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """From when to when the log is."""
        if not loop.counts.decisions:
            raise Problem(404, "LogsPropertiesNotFound", "the log holds no events")
        found = {"from": timestamp(loop.created), "to": timestamp(loop.now)}
        return json_answer({"dateRange": found})

    async def delete_logs(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Delete the log; what was learned stays."""
        await self.service.clear(loop, "personalizer")
        return Answer(204)

    async def refuse_log(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Logs of local inference are FlatBuffers that only Azure's own code writes."""
        raise Problem(
            403,
            "OperationNotAllowed",
            "logs of local inference (FlatBuffers) cannot be read here; call rank and reward",
        )

    # Evaluations

    async def put_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Begin an evaluation; it is done in the background."""
        asked = msgspec.json.decode(request.body, type=EvaluationContract)
        start, end = seconds_since(asked.start_time), seconds_since(asked.end_time)
        if not start < end:
            raise ValueError("the evaluation ends before it starts")
        policies = {}
        for policy in asked.policies or []:
            if policy.name in policies:
                raise Problem(400, "DuplicateCustomPolicyNames", f"{policy.name!r} is there twice")
            learning_settings(policy.arguments)
            policies[policy.name] = policy.arguments
        explore = asked.enable_offline_experimentation or asked.enable_policy_optimization
        evaluation = self.evaluations.begin(
            loop, id or None, asked.name, start, end, policies, bool(explore)
        )
        if version.current:
            return json_answer(evaluation_2022(evaluation), 200)
        where = f"{request.raw_path.decode('latin-1').rstrip('/')}/{evaluation.id}"
        return json_answer(evaluation_v1(evaluation), 201, [(b"location", where.encode())])

    async def list_evaluations(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """All evaluations."""
        found = self.evaluations.all(loop)
        if not version.current:
            return json_answer([evaluation_v1(each) for each in found])
        return paged([evaluation_2022(each) for each in found], request)

    async def get_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """One evaluation, with its results over time."""
        evaluation = self.evaluations.get(loop, id)
        if not version.current:
            return json_answer(evaluation_v1(evaluation))
        query = request.query
        for name in ("startTime", "endTime"):
            if name not in query:
                raise ValueError(f"{name} is missing")
        start, end = seconds_since(query["startTime"]), seconds_since(query["endTime"])
        minutes, window = query.get("intervalInMinutes", "5"), query.get("window", "Expanding")
        if minutes not in ("5", "60", "360", "720", "1440"):
            raise ValueError("intervalInMinutes is 5, 60, 360, 720 or 1440")
        if window not in ("Expanding", "Rolling"):
            raise ValueError("window is Expanding or Rolling")
        content = series_2022(evaluation, start, end, int(minutes), window == "Expanding")
        return json_answer({**evaluation_2022(evaluation), "content": content})

    async def delete_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Delete an evaluation."""
        self.evaluations.delete(loop, id)
        return Answer(204)

    # Feature importances

    async def put_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Find out which features matter now; takes no time, so it is done at once."""
        asked = msgspec.json.decode(request.body, type=EvaluationContract)
        found = {
            "id": id,
            "name": asked.name,
            "startTime": asked.start_time,
            "endTime": asked.end_time,
            "creationTime": timestamp(self.service.clock()),
            "status": "Succeeded",
            "featureScores": importances(loop),
        }
        await asyncio.to_thread(
            self.service.store.put_document, loop.name, "importance", id, encode(found)
        )
        return json_answer(found)

    def _importances(self, loop: Loop) -> dict[str, Any]:
        found = self.service.store.documents(loop.name, "importance")
        return {id: msgspec.json.decode(body) for id, body in found.items()}

    async def list_importances(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """All of them."""
        return paged(list(self._importances(loop).values()), request)

    async def get_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """One of them."""
        found = self._importances(loop).get(id)
        if found is None:
            raise Problem(404, "EvaluationNotFound", f"there is no feature importance {id!r}")
        return json_answer(found)

    async def delete_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Delete one."""
        await asyncio.to_thread(self.service.store.delete_document, loop.name, "importance", id)
        return Answer(204)


# Errors that other parts of the service name otherwise.
WORDS = {
    "NotFound": "ResourceNotFound",
    "Forbidden": "OperationNotAllowed",
    "InternalError": "InternalServerError",
    "StoreUnavailable": "InternalServerError",
    "TooLarge": "PayloadSizeExceeded",
    "Conflict": "BadRequest",
}


def generation(request: Request) -> tuple[Version, list[str]]:
    """Which generation is spoken, and the rest of the path."""
    words = request.path[1:]
    if words and words[0] == "v1.0":
        return Version("v1.0"), words[1:]
    if words and re.fullmatch(r"v1\.1-preview(\.[0-9])?", words[0]):
        return Version("v1.1"), words[1:]
    asked = request.query.get("api-version", "")
    if asked != CURRENT:
        raise Problem(
            404,
            "ResourceNotFound",
            f"the paths are /personalizer/v1.0, /personalizer/v1.1-preview.3, and those with "
            f"?api-version={CURRENT}; {asked[:40]!r} is another version",
        )
    return Version(CURRENT), words


def original_url(request: Request, words: list[str]) -> Headers:
    """What @azure-rest looks at to accept a success: the path without its beginning."""
    raw = request.raw_path.split(b"/")
    rest = b"/".join(raw[len(raw) - len(words) :])
    host = request.headers.get(b"host", b"localhost")
    if not re.fullmatch(rb"[A-Za-z0-9.:\[\]_-]{1,255}", host):
        host = b"localhost"
    scheme = b"https" if request.secure else b"http"
    return [(b"x-ms-original-url", b"%s://%s/%s" % (scheme, host, rest))]


def repeat_key(request: Request) -> str | None:
    """By what a repeat of a request is recognised.

    The id of the request together with what it says: an application may give all requests of a
    visit the same id.
    """
    id = request.header(b"x-ms-client-request-id")
    if not id or len(id) > 200:
        return None
    return id + hashlib.blake2b(request.raw_path + request.body, digest_size=8).hexdigest()


def check_reward(value: float) -> None:
    """Complain about a reward that Personalizer would not have taken."""
    if not REWARDS[0] <= value <= REWARDS[1]:
        raise ValueError(f"a reward is −1 to 1, not {value:g}")


# Policies as learning settings

LEARNING = ("policy", "model", "forgetting")


def policy_contract(settings: LoopSettings) -> dict[str, str]:
    """The learning settings of a loop."""
    arguments = {name: getattr(settings, name) for name in LEARNING}
    return {"name": settings.policy, "arguments": json.dumps(arguments)}


def learning_settings(arguments: str) -> dict[str, Any]:
    """Learning settings as settings of a loop: JSON as `policy` returns it, or a policy's name.

    >>> learning_settings("TS-UCB(100)")
    {'policy': 'TS-UCB(100)'}
    """
    if arguments.lstrip().startswith("--"):
        raise ValueError(
            "these are arguments of Vowpal Wabbit, which does not run here; give the name of a "
            'policy, such as TS-UCB(10), or {"policy": "TS-UCB(10)", "forgetting": 0.999}'
        )
    changes: dict[str, Any] = {"policy": arguments.strip()}
    if arguments.lstrip().startswith("{"):
        changes = msgspec.json.decode(arguments, type=dict[str, Any])
    unknown = [name for name in changes if name not in LEARNING]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no learning setting; they are {', '.join(LEARNING)}")
    changed(LoopSettings(), changes)
    return changes


# Evaluations in both forms


def evaluation_v1(evaluation: Evaluation) -> dict[str, Any]:
    """As the generations v1.x have it."""
    status = {"Succeeded": "completed", "Running": "pending", "Failed": "failed"}
    results = [
        {
            "name": policy.name,
            "arguments": policy.arguments,
            "policySource": policy.source,
            "summary": [summary_v1(span.start, 5, [span]) for span in policy.spans],
            "totalSummary": summary_v1(evaluation.start, 0, policy.spans),
        }
        for policy in evaluation.policies
    ]
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "startTime": timestamp(evaluation.start),
        "endTime": timestamp(evaluation.end),
        "jobId": evaluation.id,
        "status": status[evaluation.status],
        "policyResults": results,
        "featureImportance": [],
        "evaluationType": "Manual",
        "optimalPolicy": evaluation.best,
        "creationTime": timestamp(evaluation.created),
    }


def summary_v1(start: float, minutes: int, spans: list[Any]) -> dict[str, Any]:
    """Sums over stretches of time."""
    count = sum(span.count for span in spans)
    total, squares = sum(span.total for span in spans), sum(span.squares for span in spans)
    mean = total / count if count else 0.0
    spread = math.sqrt(max(squares / count - mean**2, 0.0) / count) if count else 0.0
    return {
        "timeStamp": timestamp(start),
        "ipsEstimatorNumerator": total,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": count,
        "aggregateTimeWindow": duration(60.0 * minutes),
        "nonZeroProbability": 1.0,
        "sumOfSquares": squares,
        "confidenceInterval": 1.96 * spread,
        "averageReward": mean,
    }


def evaluation_2022(evaluation: Evaluation) -> dict[str, Any]:
    """As the generation of 2022 has it, without results."""
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "startTime": timestamp(evaluation.start),
        "endTime": timestamp(evaluation.end),
        "status": evaluation.status,
        "evaluationType": "Manual",
        "description": evaluation.note,
        "optimalPolicy": evaluation.best,
        "creationTime": timestamp(evaluation.created),
    }


def series_2022(
    evaluation: Evaluation, start: float, end: float, minutes: int, expanding: bool
) -> dict[str, Any]:
    """The results over time."""
    value = []
    for policy in evaluation.policies:
        spans = [span for span in policy.spans if start <= span.start < end]
        data, so_far = [], []
        groups: dict[int, list[Any]] = {}
        for span in spans:
            groups.setdefault(int(span.start // (60 * minutes)), []).append(span)
        for number, group in groups.items():
            so_far += group
            found = summary_v1(0.0, 0, so_far if expanding else group)
            data.append({"timeStamp": timestamp(60.0 * minutes * number), **expected(found)})
        value.append(
            {
                "name": policy.name,
                "arguments": policy.arguments,
                "policySource": policy.source,
                "slotId": "",
                "summary": expected(summary_v1(0.0, 0, spans)),
                "timeseries": {"data": data},
            }
        )
    return {
        "startTime": timestamp(start),
        "endTime": timestamp(end),
        "intervalInMinutes": minutes,
        "value": value,
    }


def expected(summary: dict[str, Any]) -> dict[str, Any]:
    """Mean and interval."""
    mean, half = summary["averageReward"], summary["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}


def paged(rows: list[Any], request: Request) -> Answer:
    """Some rows of a list, and where the next ones are."""
    query = request.query
    skip, top = int(query.get("skip", "0")), int(query.get("top", "100"))
    if skip < 0 or top < 1:
        raise ValueError("skip and top are numbers of rows")
    answer: dict[str, Any] = {"value": rows[skip : skip + top]}
    if skip + top < len(rows):
        base = request.raw_path.decode("latin-1")
        answer["nextLink"] = f"{base}?api-version={CURRENT}&skip={skip + top}&top={top}"
    return json_answer(answer)


# Times


def timestamp(seconds: float) -> str:
    """A time as ISO 8601 has it.

    >>> timestamp(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float:
    """The same in seconds since 1970.

    >>> seconds_since("1970-01-01T01:00:00.000Z")
    3600.0
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is no time; give one such as 2026-01-31T12:00:00Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)


def duration(seconds: float) -> str:
    """A stretch of time as ISO 8601 has it.

    >>> duration(600), duration(90_061), duration(0.5)
    ('PT10M', 'P1DT1H1M1S', 'PT0.5S')
    """
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(hours, "H"), (minutes, "M"), (rest, "S")]
    time = "".join(f"{part:g}{letter}" for part, letter in parts if part)
    text = (f"{days:g}D" if days else "") + (f"T{time}" if time else "")
    return f"P{text or 'T0S'}"


def seconds_of(text: Any) -> float:
    """The same in seconds; also as .NET writes it.

    >>> seconds_of("PT10M"), seconds_of("P1DT2H"), seconds_of("00:10:00"), seconds_of("1.00:00:00")
    (600.0, 93600.0, 600.0, 86400.0)
    """
    if isinstance(text, str) and (match := DURATION.fullmatch(text)) and len(text) > 2:
        units = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
        return float(sum(float(match[name] or 0) * size for name, size in units.items()))
    if isinstance(text, str) and (match := re.fullmatch(r"(?:(\d+)\.)?(\d+):(\d+):(\d+)", text)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    raise ValueError(f"{str(text)[:40]!r} is no duration; give one such as PT10M")
