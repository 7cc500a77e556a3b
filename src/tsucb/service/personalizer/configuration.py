"""The settings of a loop, in Personalizer's words."""

from typing import Any

import msgspec

from tsucb.service.http import Answer, HttpProblem, Request, encode, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.events import REWARDS, check_reward
from tsucb.service.personalizer.routes import Route, Routes, Version
from tsucb.service.personalizer.times import duration, seconds_of, timestamp
from tsucb.service.service import Service
from tsucb.service.settings import changed
from tsucb.service.store import Document

LEAST_WAIT, LONGEST_WAIT = 5.0, 172_800.0  # seconds
FOREVER = -1  # days for which logs are kept
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
EXTRAS = "personalizer"  # the document with settings that have no counterpart
PLAIN_EXTRAS: dict[str, Any] = {
    "modelExportFrequency": "PT5M",
    "modelRetrainDays": 0,
    "logMirrorEnabled": False,
    "logMirrorSasUri": "",
    "isAutoOptimizationEnabled": False,
}


class Configuration:
    """Operations on the settings."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> Routes:
        """What is answered here."""
        path, wrong = "configurations/service", "InvalidServiceConfiguration"
        return {
            ("GET", path): Route(ADMINISTER, "BadRequest", self.configuration),
            ("PUT", path): Route(ADMINISTER, wrong, self.configure),
        }

    async def configuration(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """The settings in Personalizer's words."""
        return json_answer(await self._configuration(loop))

    async def _configuration(self, loop: Loop) -> dict[str, Any]:
        settings = loop.settings
        whole = await self.service.look(loop, loop.tally.whole)
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
            **await self._extras(loop),
            "logRetentionDays": settings.retention_days or FOREVER,
            "learningMode": modes[settings.mode],
            "latestApprenticeModeMetrics": {
                **metrics,
                "startTime": timestamp(loop.created),
                "lastProcessedEventTime": timestamp(loop.now),
                "lastBatchMetrics": metrics,
            },
        }

    async def _extras(self, loop: Loop) -> dict[str, Any]:
        found = (await self.service.documents(loop, EXTRAS)).get(EXTRAS)
        return {} if found is None else msgspec.json.decode(found, type=dict[str, Any])

    async def configure(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Change settings; what is not given stays."""
        given = msgspec.json.decode(request.body, type=dict[str, Any])
        # Its clients report what went well, and leave the rest to the default reward.
        changes: dict[str, Any] = {"reward_range": REWARDS, "learn_early": False}
        if "rewardWaitTime" in given:
            seconds = seconds_of(given["rewardWaitTime"])
            if not LEAST_WAIT <= seconds <= LONGEST_WAIT:
                raise HttpProblem(
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
                raise HttpProblem(
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
                raise HttpProblem(
                    400, "InvalidLogRetentionDays", "logRetentionDays is at least 1, or -1 for ever"
                )
            changes["retention_days"] = None if days == FOREVER else days
        changed(loop.settings, changes)  # so that nothing is written if it is wrong
        extras = {name: given[name] for name in PLAIN_EXTRAS if given.get(name) is not None}
        extras = {**await self._extras(loop), **extras}
        extras["lastConfigurationEditDate"] = timestamp(self.service.clock())
        document = Document(loop.number, EXTRAS, EXTRAS, encode(extras))
        await self.service.configure(loop, changes, "personalizer", documents=[document])
        return json_answer(await self._configuration(loop))
