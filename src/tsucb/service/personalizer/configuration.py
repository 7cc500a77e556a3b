"""The settings, the policy, the model and the log of a loop, in Personalizer's words."""

import json
from typing import Any

import msgspec

from tsucb.service.errors import HttpProblem, NotFound
from tsucb.service.http import Answer, Call, encode
from tsucb.service.keys import ADMINISTER, DECIDE
from tsucb.service.personalizer.events import REWARDS, Value
from tsucb.service.personalizer.routes import ROUTES, WHO, duration, moment, seconds_of
from tsucb.service.settings import LoopSettings, changed
from tsucb.service.tables import Document

SERVICE, POLICY = "configurations/service", "configurations/policy"
LEAST_WAIT, LONGEST_WAIT = 5.0, 172_800.0  # seconds
FOREVER = -1  # for logRetentionDays
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
AGGREGATIONS = {"earliest": "first", "sum": "sum"}
LEARNING = ("policy", "model", "forgetting")
EXTRAS = "personalizer"  # the document with settings that have no effect here
PLAIN_EXTRAS: dict[str, Any] = {
    "modelExportFrequency": "PT5M",
    "modelRetrainDays": 0,
    "logMirrorEnabled": False,
    "logMirrorSasUri": "",
    "isAutoOptimizationEnabled": False,
}


class PolicyContract(msgspec.Struct):
    """Learning settings."""

    name: str
    arguments: str


def theirs(words: dict[str, str], ours: str) -> str:
    """Return Personalizer's word for ours."""
    return next(name for name, value in words.items() if value == ours)


@ROUTES.add("GET", SERVICE, ADMINISTER)
async def configuration(call: Call) -> Any:
    """Return the settings in Personalizer's words."""
    loop = call.service.loop(call.loop.name)
    settings = loop.settings
    whole = await call.service.look(loop, loop.tally.whole)
    metrics = {
        "numberOfEvents": whole.rewards,
        "sumOfRewards": whole.total,
        "numberOfImitatedEvents": whole.imitated,
        "sumOfImitatedRewards": whole.imitated_total,
    }
    return {
        "rewardWaitTime": duration(settings.reward_wait),
        "defaultReward": settings.default_reward or 0.0,
        "rewardAggregation": theirs(AGGREGATIONS, settings.aggregation),
        "explorationPercentage": settings.exploration,
        **PLAIN_EXTRAS,
        "lastConfigurationEditDate": moment(loop.created),
        "autoOptimizationFrequency": "P7D",
        "autoOptimizationStartDate": moment(loop.created),
        **await extras_of(call),
        "logRetentionDays": settings.retention_days or FOREVER,
        "learningMode": theirs(MODES, settings.mode),
        "latestApprenticeModeMetrics": {
            **metrics,
            "startTime": moment(loop.created),
            "lastProcessedEventTime": moment(loop.now),
            "lastBatchMetrics": metrics,
        },
    }


async def extras_of(call: Call) -> dict[str, Any]:
    """Return the settings that have no effect here, as a client last gave them."""
    found = (await call.service.documents(call.loop, EXTRAS)).get(EXTRAS, b"{}")
    return msgspec.json.decode(found, type=dict[str, Any])


@ROUTES.add("PUT", SERVICE, ADMINISTER, code="InvalidServiceConfiguration")
async def configure(call: Call, body: dict[str, Any]) -> Any:
    """Change the settings that are given; the others stay."""
    extras = {
        **await extras_of(call),
        **{name: body[name] for name in PLAIN_EXTRAS if body.get(name) is not None},
        "lastConfigurationEditDate": moment(call.service.clock()),
    }
    document = Document(call.loop.number, EXTRAS, EXTRAS, encode(extras))
    await call.service.configure(call.loop, changes_of(body), WHO, documents=[document])
    return await configuration(call)


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of a service configuration in our settings."""
    # Clients report good outcomes, and leave the others to the default reward.
    changes: dict[str, Any] = {"reward_range": REWARDS, "learn_early": False}
    if "rewardWaitTime" in given:
        changes["reward_wait"] = seconds_of(given["rewardWaitTime"])
        if not LEAST_WAIT <= changes["reward_wait"] <= LONGEST_WAIT:
            message = "rewardWaitTime must be 5 seconds to 2 days"
            raise HttpProblem(400, "InvalidRewardWaitTime", message)
    if "defaultReward" in given:
        changes["default_reward"] = msgspec.convert(given["defaultReward"], Value)
    if "rewardAggregation" in given:
        if given["rewardAggregation"] not in AGGREGATIONS:
            raise ValueError("rewardAggregation is earliest or sum")
        changes["aggregation"] = AGGREGATIONS[given["rewardAggregation"]]
    if "explorationPercentage" in given:
        changes["exploration"] = given["explorationPercentage"]
    if given.get("learningMode") is not None:
        if given["learningMode"] not in MODES:
            message = f"learningMode is one of {', '.join(MODES)}"
            raise HttpProblem(400, "InvalidLearningModeServiceConfiguration", message)
        changes["mode"] = MODES[given["learningMode"]]
    if given.get("logMirrorEnabled") or given.get("isAutoOptimizationEnabled"):
        raise ValueError(
            "mirroring logs to Azure and automatic optimisation are not offered here; see the "
            "migration page for what to use instead"
        )
    if (days := given.get("logRetentionDays")) is not None:
        if type(days) is not int or (days < 1 and days != FOREVER):
            message = "logRetentionDays is at least 1, or -1 for ever"
            raise HttpProblem(400, "InvalidLogRetentionDays", message)
        changes["retention_days"] = None if days == FOREVER else days
    return changes


# The policy, which clients know as learning settings


@ROUTES.add("GET", POLICY, ADMINISTER)
async def policy(call: Call) -> Any:
    """Return the learning settings: the policy, the model and its forgetting."""
    return policy_contract(call.loop.settings)


@ROUTES.add("PUT", POLICY, ADMINISTER, code="InvalidPolicyConfiguration")
async def set_policy(call: Call, body: PolicyContract) -> Any:
    """Change the learning settings."""
    changes = learning_settings(body.arguments)
    return policy_contract(await call.service.configure(call.loop, changes, WHO))


@ROUTES.add("DELETE", POLICY, ADMINISTER)
async def reset_policy(call: Call) -> Any:
    """Restore the default policy and forgetting; the model stays."""
    changes = {name: getattr(LoopSettings(), name) for name in ("policy", "forgetting")}
    return policy_contract(await call.service.configure(call.loop, changes, WHO))


def policy_contract(settings: LoopSettings) -> dict[str, str]:
    """Return learning settings in the form of clients."""
    arguments = {name: getattr(settings, name) for name in LEARNING}
    return {"name": settings.policy, "arguments": json.dumps(arguments)}


def learning_settings(arguments: str) -> dict[str, Any]:
    """Return our settings for learning settings: JSON as from `policy`, or a policy's name.

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


# The model and the log


@ROUTES.add("GET", "model", ADMINISTER)
async def model(call: Call) -> Answer:
    """Return the model as a file of this library."""
    if call.loop.learner is None:
        raise NotFound("there is no model yet; nothing was ranked")
    held = await call.service.look(call.loop, call.loop.learner.hold)
    data = await call.service.turns.in_background(held.to_bytes)
    return Answer(200, data, b"application/octet-stream")


@ROUTES.add("PUT", "model", ADMINISTER, code="InvalidModelImportFormat")
async def set_model(call: Call) -> None:
    """Import a file that `model` returned."""
    if not call.body.startswith(b"tsucb "):
        raise ValueError(
            "only models exported from this service can be imported, not Vowpal Wabbit's"
        )
    await call.service.import_model(call.loop, call.body, WHO)


@ROUTES.add("DELETE", "model", ADMINISTER, code="ModelResetFailed")
async def reset_model(call: Call) -> None:
    """Forget what was learned."""
    await call.service.reset(call.loop, WHO)


@ROUTES.add("GET", "model/properties", ADMINISTER)
async def model_properties(call: Call) -> Any:
    """Return when the model was created, and when it was last changed."""
    found = {"creationTime": call.loop.created, "lastModifiedTime": call.loop.now}
    return {name: moment(time) for name, time in found.items()}


@ROUTES.add("GET", "logs/properties", ADMINISTER)
async def log_properties(call: Call) -> Any:
    """Return the time of the first and of the last event in the log."""
    if not call.loop.counts.decisions:
        raise HttpProblem(404, "LogsPropertiesNotFound", "the log holds no events")
    return {"dateRange": {"from": moment(call.loop.created), "to": moment(call.loop.now)}}


@ROUTES.add("DELETE", "logs", ADMINISTER)
async def delete_logs(call: Call) -> None:
    """Delete the log; what was learned stays."""
    await call.service.clear(call.loop, WHO)


@ROUTES.add("POST", "logs/interactions", DECIDE)
@ROUTES.add("POST", "logs/observations", DECIDE)
async def refuse_log(call: Call) -> None:
    """Refuse logs of local inference: FlatBuffers that only Azure's own code writes."""
    message = "logs of local inference (FlatBuffers) cannot be read here; call rank and reward"
    raise HttpProblem(403, "OperationNotAllowed", message)
