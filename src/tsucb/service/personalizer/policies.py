"""Policies, which its clients know as learning settings."""

import json
from typing import Any

import msgspec

from tsucb.service.evaluations import Evaluations
from tsucb.service.http import Answer, HttpProblem, Request, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.routes import Route, Routes, Version
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings, changed

LEARNING = ("policy", "model", "forgetting")


class PolicyContract(msgspec.Struct):
    """Learning settings."""

    name: str
    arguments: str


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: str
    policy_name: str


class Policies:
    """Operations on learning settings."""

    def __init__(self, service: Service, evaluations: Evaluations) -> None:
        self.service, self.evaluations = service, evaluations

    def routes(self) -> Routes:
        """What is answered here."""
        path, wrong = "configurations/policy", "InvalidPolicyConfiguration"
        missing = "LearningSettingsNotFound"
        return {
            ("GET", path): Route(ADMINISTER, "BadRequest", self.policy),
            ("PUT", path): Route(ADMINISTER, wrong, self.set_policy),
            ("DELETE", path): Route(ADMINISTER, "BadRequest", self.reset_policy),
            ("POST", "configurations/applyFromEvaluation"): Route(ADMINISTER, missing, self.apply),
        }

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
        """Return to the policy and the forgetting that a loop begins with; its model stays."""
        plain = LoopSettings()
        changes = {"policy": plain.policy, "forgetting": plain.forgetting}
        return json_answer(
            policy_contract(await self.service.configure(loop, changes, "personalizer"))
        )

    async def apply(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Take over the learning settings of an evaluation."""
        asked = msgspec.json.decode(request.body, type=PolicyReference)
        evaluation = await self.evaluations.get(loop, asked.evaluation_id)
        found = [p for p in evaluation.policies if p.name == asked.policy_name]
        if not found or found[0].source in ("Baseline", "Random"):
            raise HttpProblem(
                404,
                "LearningSettingsNotFound",
                f"the evaluation has no learning settings {asked.policy_name!r} to apply",
            )
        if found[0].source != "Online":
            changes = learning_settings(found[0].arguments)
            await self.service.configure(loop, changes, "personalizer")
        return Answer(204)


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
