"""What was learned, and the log it was learned from."""

from tsucb.service.errors import NotFound
from tsucb.service.http import Answer, HttpProblem, Request, json_answer
from tsucb.service.keys import ADMINISTER, DECIDE
from tsucb.service.loop import Loop
from tsucb.service.personalizer.routes import Route, Routes, Version
from tsucb.service.personalizer.times import timestamp
from tsucb.service.service import Service


class Models:
    """Operations on the model and the log."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> Routes:
        """What is answered here."""
        refuse = Route(DECIDE, "BadRequest", self.refuse_log)
        return {
            ("GET", "model"): Route(ADMINISTER, "BadRequest", self.model),
            ("PUT", "model"): Route(ADMINISTER, "InvalidModelImportFormat", self.set_model),
            ("DELETE", "model"): Route(ADMINISTER, "ModelResetFailed", self.reset_model),
            ("GET", "model/properties"): Route(ADMINISTER, "BadRequest", self.model_properties),
            ("GET", "logs/properties"): Route(ADMINISTER, "BadRequest", self.log_properties),
            ("DELETE", "logs"): Route(ADMINISTER, "BadRequest", self.delete_logs),
            ("POST", "logs/interactions"): refuse,
            ("POST", "logs/observations"): refuse,
        }

    async def model(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """What was learned, as a file of this library."""
        if loop.learner is None:
            raise NotFound("there is no model yet; nothing was ranked")
        held = await self.service.look(loop, loop.learner.hold)
        data = await self.service.turns.in_background(held.to_bytes)
        return Answer(200, data, b"application/octet-stream")

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
            raise HttpProblem(404, "LogsPropertiesNotFound", "the log holds no events")
        found = {"from": timestamp(loop.created), "to": timestamp(loop.now)}
        return json_answer({"dateRange": found})

    async def delete_logs(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Delete the log; what was learned stays."""
        await self.service.clear(loop, "personalizer")
        return Answer(204)

    async def refuse_log(self, loop: Loop, request: Request, id: str, version: Version) -> Answer:
        """Logs of local inference are FlatBuffers that only Azure's own code writes."""
        raise HttpProblem(
            403,
            "OperationNotAllowed",
            "logs of local inference (FlatBuffers) cannot be read here; call rank and reward",
        )
