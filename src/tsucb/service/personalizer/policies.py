"""Policies, which its clients know as learning settings."""

import json
from typing import Any

import msgspec

from tsucb.service.http import Call, HttpProblem
from tsucb.service.keys import ADMINISTER
from tsucb.service.personalizer.routes import ROUTES
from tsucb.service.settings import LoopSettings, changed

PATH = "configurations/policy"
LEARNING = ("policy", "model", "forgetting")


class PolicyContract(msgspec.Struct):
    """Learning settings."""

    name: str
    arguments: str


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: str
    policy_name: str


@ROUTES.add("GET", PATH, ADMINISTER)
async def policy(call: Call) -> Any:
    """Return the learning settings: the policy's name, and what else decides how it learns."""
    return policy_contract(call.loop.settings)


@ROUTES.add("PUT", PATH, ADMINISTER, body=PolicyContract, code="InvalidPolicyConfiguration")
async def set_policy(call: Call) -> Any:
    """Change the learning settings."""
    changes = learning_settings(call.body.arguments)
    return policy_contract(await call.service.configure(call.loop, changes, "personalizer"))


@ROUTES.add("DELETE", PATH, ADMINISTER)
async def reset_policy(call: Call) -> Any:
    """Return to the policy and the forgetting that a loop begins with; its model stays."""
    changes = {"policy": LoopSettings().policy, "forgetting": LoopSettings().forgetting}
    return policy_contract(await call.service.configure(call.loop, changes, "personalizer"))


@ROUTES.add(
    "POST", "configurations/applyFromEvaluation", ADMINISTER, body=PolicyReference,
    code="LearningSettingsNotFound",
)  # fmt: skip
async def apply(call: Call) -> None:
    """Take over the learning settings of an evaluation."""
    name = call.body.policy_name
    evaluation = await call.evaluations.get(call.loop, call.body.evaluation_id)
    found = [each for each in evaluation.policies if each.name == name]
    if not found or found[0].source in ("Baseline", "Random"):
        message = f"the evaluation has no learning settings {name!r} to apply"
        raise HttpProblem(404, "LearningSettingsNotFound", message)
    if found[0].source != "Online":
        changes = learning_settings(found[0].arguments)
        await call.service.configure(call.loop, changes, "personalizer")


def policy_contract(settings: LoopSettings) -> dict[str, str]:
    """Return the learning settings of a loop."""
    arguments = {name: getattr(settings, name) for name in LEARNING}
    return {"name": settings.policy, "arguments": json.dumps(arguments)}


def learning_settings(arguments: str) -> dict[str, Any]:
    """Return learning settings, JSON as `policy` returns it or a policy's name, as our settings.

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
