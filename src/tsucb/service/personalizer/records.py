"""What was learned, the log it was learned from, and which features matter."""

from functools import partial
from typing import Any

import msgspec

from tsucb.service.errors import NotFound
from tsucb.service.evaluations import importances
from tsucb.service.http import Answer, Call, HttpProblem, encode
from tsucb.service.keys import ADMINISTER, DECIDE
from tsucb.service.personalizer.evaluations import EvaluationContract
from tsucb.service.personalizer.routes import ROUTES, paged
from tsucb.service.personalizer.times import timestamp
from tsucb.service.service import check_text

WHO = "personalizer"  # in the audit trail
KIND, ONE = "importance", "featureImportances/*"


@ROUTES.add("GET", "model", ADMINISTER)
async def model(call: Call) -> Answer:
    """Return what was learned, as a file of this library."""
    if call.loop.learner is None:
        raise NotFound("there is no model yet; nothing was ranked")
    held = await call.service.look(call.loop, call.loop.learner.hold)
    data = await call.service.turns.in_background(held.to_bytes)
    return Answer(200, data, b"application/octet-stream")


@ROUTES.add("PUT", "model", ADMINISTER, code="InvalidModelImportFormat")
async def set_model(call: Call) -> None:
    """Take over a file that `model` returned."""
    if not call.request.body.startswith(b"tsucb "):
        raise ValueError(
            "only models exported from this service can be imported, not Vowpal Wabbit's"
        )
    await call.service.import_model(call.loop, call.request.body, WHO)


@ROUTES.add("DELETE", "model", ADMINISTER, code="ModelResetFailed")
async def reset_model(call: Call) -> None:
    """Forget what was learned."""
    await call.service.reset(call.loop, WHO)


@ROUTES.add("GET", "model/properties", ADMINISTER)
async def model_properties(call: Call) -> Any:
    """Return when the model was made, and when it learned last."""
    found = {"creationTime": call.loop.created, "lastModifiedTime": call.loop.now}
    return {name: timestamp(time) for name, time in found.items()}


@ROUTES.add("GET", "logs/properties", ADMINISTER)
async def log_properties(call: Call) -> Any:
    """Return from when to when the log is."""
    if not call.loop.counts.decisions:
        raise HttpProblem(404, "LogsPropertiesNotFound", "the log holds no events")
    return {"dateRange": {"from": timestamp(call.loop.created), "to": timestamp(call.loop.now)}}


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


# Which features matter


async def all_importances(call: Call) -> dict[str, Any]:
    """Return what was found out about features, by id."""
    found = await call.service.documents(call.loop, KIND)
    return {id: msgspec.json.decode(body) for id, body in found.items()}


@ROUTES.add("GET", "featureImportances", ADMINISTER)
async def list_importances(call: Call) -> Any:
    """List all of them."""
    return paged(list((await all_importances(call)).values()), call.request)


@ROUTES.add("PUT", ONE, ADMINISTER, body=EvaluationContract, code="InvalidEvaluationContract")
async def put_importance(call: Call) -> Any:
    """Find out at once which features matter now."""
    check_text("the id of a feature importance", call.id)
    found = {
        "id": call.id,
        "name": call.body.name,
        "startTime": call.body.start_time,
        "endTime": call.body.end_time,
        "creationTime": timestamp(call.service.clock()),
        "status": "Succeeded",
        "featureScores": await call.service.look(call.loop, partial(importances, call.loop)),
    }
    await call.service.put_document(call.loop, KIND, call.id, encode(found))
    return found


@ROUTES.add("GET", ONE, ADMINISTER)
async def get_importance(call: Call) -> Any:
    """Return one of them."""
    found = (await all_importances(call)).get(call.id)
    if found is None:
        message = f"there is no feature importance {call.id!r}"
        raise HttpProblem(404, "EvaluationNotFound", message)
    return found


@ROUTES.add("DELETE", ONE, ADMINISTER)
async def delete_importance(call: Call) -> None:
    """Delete one of them."""
    await call.service.delete_document(call.loop, KIND, call.id)
