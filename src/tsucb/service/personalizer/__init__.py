"""The protocol of Azure Personalizer, in all three generations, for the clients that speak it.

    /personalizer/v1.0/…
    /personalizer/v1.1-preview.N/…
    /personalizer/…?api-version=2022-09-01-preview

Which loop is meant says the key. Words of theirs in words of ours: action = arm, event = decision,
exploration percentage = floor, learning settings = policy, apprentice mode = the same.

| module | what it has |
|---|---|
| `routes` | which operation a path stands for, in which generation |
| `events` | rank, reward, activate, for one place or several |
| `configuration`, `policies` | the settings of a loop, and those of learning |
| `models` | what was learned, and the log |
| `evaluations`, `importances` | what the log says about other policies, and about features |
| `times` | times and durations as clients write them |
"""

from typing import Any

import msgspec

from tsucb.service.errors import NotFound
from tsucb.service.evaluations import Evaluations
from tsucb.service.http import Answer, HttpProblem, Request, allowed, json_answer
from tsucb.service.keys import Holder
from tsucb.service.personalizer.configuration import Configuration
from tsucb.service.personalizer.evaluations import Evaluating
from tsucb.service.personalizer.events import Events
from tsucb.service.personalizer.importances import Importances
from tsucb.service.personalizer.models import Models
from tsucb.service.personalizer.policies import Policies
from tsucb.service.personalizer.routes import generation, original_url
from tsucb.service.service import Service

# Errors that other parts of the service name otherwise.
WORDS = {
    "NotFound": "ResourceNotFound",
    "Forbidden": "OperationNotAllowed",
    "InternalError": "InternalServerError",
    "StoreUnavailable": "InternalServerError",
    "TooLarge": "PayloadSizeExceeded",
    "Conflict": "BadRequest",
}


class Personalizer:
    """Answers requests under /personalizer."""

    def __init__(self, service: Service) -> None:
        self.service = service
        evaluations = Evaluations(service)
        parts = (
            Events(service), Configuration(service), Policies(service, evaluations),
            Models(service), Evaluating(evaluations), Importances(service),
        )  # fmt: skip
        routes = [found for part in parts for found in part.routes().items()]
        self.routes = {(method, tuple(path.split("/"))): r for (method, path), r in routes}

    def problem(self, problem: HttpProblem) -> Answer:
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
                raise HttpProblem(405, "BadRequest", f"{request.method} is not for this path")
            raise HttpProblem(404, "ResourceNotFound", "there is no such operation of Personalizer")
        if holder is None:
            raise HttpProblem(
                401,
                "Unauthorized",
                "give a key of a loop in Ocp-Apim-Subscription-Key; this is none",
            )
        if holder.loop is None:
            raise HttpProblem(403, "OperationNotAllowed", "give a key of a loop, not the server's")
        allowed(holder, route.role, holder.loop)
        loop = self.service.loop(holder.loop)
        if not id and "*" in pattern:
            raise HttpProblem(400, route.code, "the id is empty")
        try:
            answer = await route.operation(loop, request, id, version)
        except NotFound as error:
            raise HttpProblem(404, "ResourceNotFound", str(error)) from None
        except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise HttpProblem(400, route.code, str(error)) from None
        if answer.status == 204:
            answer = answer._replace(headers=[*answer.headers, *original_url(request, words)])
        return answer
