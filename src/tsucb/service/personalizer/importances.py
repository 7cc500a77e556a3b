"""Which features matter."""

from functools import partial
from typing import Any

import msgspec

from tsucb.service.evaluations import importances
from tsucb.service.http import Answer, HttpProblem, Request, encode, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.evaluations import EvaluationContract
from tsucb.service.personalizer.routes import Route, Routes, Version, paged
from tsucb.service.personalizer.times import timestamp
from tsucb.service.service import Service, check_text


class Importances:
    """Operations on feature importances."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> Routes:
        """What is answered here."""
        one, wrong = "featureImportances/*", "InvalidEvaluationContract"
        return {
            ("GET", "featureImportances"): Route(ADMINISTER, "BadRequest", self.list_importances),
            ("PUT", one): Route(ADMINISTER, wrong, self.put_importance),
            ("GET", one): Route(ADMINISTER, "BadRequest", self.get_importance),
            ("DELETE", one): Route(ADMINISTER, "BadRequest", self.delete_importance),
        }

    async def put_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Find out at once which features matter now."""
        asked = msgspec.json.decode(request.body, type=EvaluationContract)
        check_text("the id of a feature importance", id)
        found = {
            "id": id,
            "name": asked.name,
            "startTime": asked.start_time,
            "endTime": asked.end_time,
            "creationTime": timestamp(self.service.clock()),
            "status": "Succeeded",
            "featureScores": await self.service.look(loop, partial(importances, loop)),
        }
        await self.service.put_document(loop, "importance", id, encode(found))
        return json_answer(found)

    async def _importances(self, loop: Loop) -> dict[str, Any]:
        found = await self.service.documents(loop, "importance")
        return {id: msgspec.json.decode(body) for id, body in found.items()}

    async def list_importances(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """All of them."""
        return paged(list((await self._importances(loop)).values()), request)

    async def get_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """One of them."""
        found = (await self._importances(loop)).get(id)
        if found is None:
            raise HttpProblem(404, "EvaluationNotFound", f"there is no feature importance {id!r}")
        return json_answer(found)

    async def delete_importance(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Delete one."""
        await self.service.delete_document(loop, "importance", id)
        return Answer(204)
