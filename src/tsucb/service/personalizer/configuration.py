"""The settings of a loop, in Personalizer's words."""

from typing import Any

import msgspec

from tsucb.service.http import Call, HttpProblem, encode
from tsucb.service.keys import ADMINISTER
from tsucb.service.personalizer.events import REWARDS, check_reward
from tsucb.service.personalizer.routes import ROUTES
from tsucb.service.personalizer.times import duration, seconds_of, timestamp
from tsucb.service.settings import changed
from tsucb.service.store import Document

LEAST_WAIT, LONGEST_WAIT = 5.0, 172_800.0  # seconds
FOREVER = -1  # days for which logs are kept
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
PATH = "configurations/service"
EXTRAS = "personalizer"  # the document with settings that have no counterpart
PLAIN_EXTRAS: dict[str, Any] = {
    "modelExportFrequency": "PT5M",
    "modelRetrainDays": 0,
    "logMirrorEnabled": False,
    "logMirrorSasUri": "",
    "isAutoOptimizationEnabled": False,
}


@ROUTES.add("GET", PATH, ADMINISTER)
async def configuration(call: Call) -> Any:
    """Return the settings in Personalizer's words."""
    loop = call.service.loop(call.loop.name)
    settings = loop.settings
    whole = await call.service.look(loop, loop.tally.whole)
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
        **await extras_of(call),
        "logRetentionDays": settings.retention_days or FOREVER,
        "learningMode": modes[settings.mode],
        "latestApprenticeModeMetrics": {
            **metrics,
            "startTime": timestamp(loop.created),
            "lastProcessedEventTime": timestamp(loop.now),
            "lastBatchMetrics": metrics,
        },
    }


async def extras_of(call: Call) -> dict[str, Any]:
    """Return the settings that have no counterpart here, as they were last given."""
    found = (await call.service.documents(call.loop, EXTRAS)).get(EXTRAS)
    return {} if found is None else msgspec.json.decode(found, type=dict[str, Any])


@ROUTES.add("PUT", PATH, ADMINISTER, body=dict[str, Any], code="InvalidServiceConfiguration")
async def configure(call: Call) -> Any:
    """Change settings; what is not given stays."""
    given, loop = call.body, call.loop
    changes = changes_of(given)
    changed(loop.settings, changes)  # so that nothing is written if it is wrong
    extras = {name: given[name] for name in PLAIN_EXTRAS if given.get(name) is not None}
    extras = {**await extras_of(call), **extras}
    extras["lastConfigurationEditDate"] = timestamp(call.service.clock())
    document = Document(loop.number, EXTRAS, EXTRAS, encode(extras))
    await call.service.configure(loop, changes, "personalizer", documents=[document])
    return await configuration(call)


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of settings that a client asks for, in words of ours."""
    # Its clients report what went well, and leave the rest to the default reward.
    changes: dict[str, Any] = {"reward_range": REWARDS, "learn_early": False}
    if "rewardWaitTime" in given:
        seconds = seconds_of(given["rewardWaitTime"])
        if not LEAST_WAIT <= seconds <= LONGEST_WAIT:
            message = "rewardWaitTime must be 5 seconds to 2 days"
            raise HttpProblem(400, "InvalidRewardWaitTime", message)
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
