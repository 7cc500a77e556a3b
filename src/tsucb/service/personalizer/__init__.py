"""The protocol of Azure Personalizer, in all three generations, for the clients that speak it.

    /personalizer/v1.0/…
    /personalizer/v1.1-preview.N/…
    /personalizer/…?api-version=2022-09-01-preview

The key selects the loop. Words of theirs in words of ours: action = arm, event = decision,
exploration percentage = floor, learning settings = policy, apprentice mode = the same.

| module | what it has |
|---|---|
| `routes` | which operation a path stands for, in which generation; times as clients write them |
| `events` | rank, reward, activate, for one place or several |
| `configuration` | the settings of a loop and of learning; what was learned, and the log |
| `evaluations` | what the log says about other policies, and which features matter |
"""

import asyncio
from typing import Any

from tsucb.service.errors import HttpProblem, Problem
from tsucb.service.http import Answer, Call, json_answer
from tsucb.service.personalizer import evaluations as evaluations  # adds to ROUTES
from tsucb.service.personalizer import events as events
from tsucb.service.personalizer.routes import ROUTES, generation, original_url

# Errors that other parts of the service name otherwise.
WORDS = {
    "NotFound": "ResourceNotFound",
    "Forbidden": "OperationNotAllowed",
    "InternalError": "InternalServerError",
    "StoreUnavailable": "InternalServerError",
    "TooLarge": "PayloadSizeExceeded",
    "Conflict": "BadRequest",
    "MethodNotAllowed": "BadRequest",
}


class Personalizer:
    """Answers requests under /personalizer."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str], asyncio.Task[None]] = {}  # evaluations, by loop and id
        self.one_at_a_time = asyncio.Lock()

    def problem(self, problem: Problem) -> Answer:
        """Return an error as this protocol has it."""
        code = WORDS.get(problem.code, problem.code)
        error: dict[str, Any] = {"code": code, "message": str(problem)}
        error |= {"target": None, "details": [], "innerError": None}
        headers = [*problem.headers, (b"x-ms-error-code", code.encode())]
        return json_answer({"error": error}, problem.status, headers)

    async def answer(self, call: Call) -> Answer:
        """Find the operation and the generation, check the key, and answer."""
        call.version, call.path = generation(call)
        route = ROUTES.find(call, call.path)
        if call.holder is None:
            message = "give a key of a loop in Ocp-Apim-Subscription-Key; this is none"
            raise HttpProblem(401, "Unauthorized", message)
        if call.holder.loop is None:
            message = "give a key of a loop, not the server's"
            raise HttpProblem(403, "OperationNotAllowed", message)
        call.check_allowed(route.action, call.holder.loop)
        call.loop, call.protocol = call.service.loop(call.holder.loop), self
        if "" in call.places:
            raise HttpProblem(400, route.code, "the id is empty")
        answer = await route.perform(call)
        return answer._replace(headers=original_url(call)) if answer.status == 204 else answer
