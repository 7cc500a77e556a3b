"""Evaluations on the log, in both forms that clients know, and which features matter."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from tsucb.service.evaluations import SUGGESTED, Evaluation, EvaluationSpan, importances
from tsucb.service.http import Call, HttpProblem, encode, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.personalizer.configuration import PolicyContract, learning_settings
from tsucb.service.personalizer.routes import (
    CURRENT,
    ROUTES,
    duration,
    paged,
    seconds_since,
    timestamp,
)
from tsucb.service.service import check_text

WRONG = "InvalidEvaluationContract"
KIND, ONE = "importance", "featureImportances/{id}"
STATUSES = {"Succeeded": "completed", "Running": "pending", "Failed": "failed"}  # of v1.x


class EvaluationContract(msgspec.Struct, rename="camel"):
    """An evaluation to be made."""

    name: str
    start_time: str
    end_time: str
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


@ROUTES.add("POST", "evaluations", ADMINISTER, body=EvaluationContract, code=WRONG)
@ROUTES.add("PUT", "evaluations/{id}", ADMINISTER, body=EvaluationContract, code=WRONG)
async def put_evaluation(call: Call) -> Any:
    """Begin an evaluation; it is done in the background."""
    asked: EvaluationContract = call.body
    start, end = seconds_since(asked.start_time), seconds_since(asked.end_time)
    if not start < end:
        raise ValueError("the evaluation ends before it starts")
    policies: dict[str, str] = {}
    for policy in asked.policies or []:
        if policy.name in policies:
            raise HttpProblem(400, "DuplicateCustomPolicyNames", f"{policy.name!r} is there twice")
        learning_settings(policy.arguments)
        policies[policy.name] = policy.arguments
    if asked.enable_offline_experimentation or asked.enable_policy_optimization:
        policies = {**SUGGESTED, **policies}
    id = call.id if call.places else ""
    evaluation = Evaluation(id, asked.name, start, end, call.service.clock(), policies)
    await call.protocol.evaluations.begin(call.loop, evaluation)
    if call.version == CURRENT:
        return evaluation_2022(evaluation)
    where = f"{call.request.raw_path.decode('latin-1').rstrip('/')}/{evaluation.id}"
    return json_answer(evaluation_v1(evaluation), 201, [(b"location", where.encode())])


@ROUTES.add("GET", "evaluations", ADMINISTER)
async def list_evaluations(call: Call) -> Any:
    """List all evaluations."""
    found = (await call.protocol.evaluations.all(call.loop)).values()
    if call.version != CURRENT:
        return [evaluation_v1(each) for each in found]
    return paged([evaluation_2022(each) for each in found], call.request)


@ROUTES.add("GET", "evaluations/{id}", ADMINISTER, code="InvalidRequest")
async def get_evaluation(call: Call) -> Any:
    """Return one evaluation, with its results over time."""
    evaluation = await call.protocol.evaluations.get(call.loop, call.id)
    if call.version != CURRENT:
        return evaluation_v1(evaluation)
    query = call.request.query
    for name in ("startTime", "endTime"):
        if name not in query:
            raise ValueError(f"{name} is missing")
    start, end = seconds_since(query["startTime"]), seconds_since(query["endTime"])
    minutes, window = query.get("intervalInMinutes", "5"), query.get("window", "Expanding")
    if minutes not in ("5", "60", "360", "720", "1440"):
        raise ValueError("intervalInMinutes is 5, 60, 360, 720 or 1440")
    if window not in ("Expanding", "Rolling"):
        raise ValueError("window is Expanding or Rolling")
    content = series_2022(evaluation, start, end, int(minutes), window == "Expanding")
    return {**evaluation_2022(evaluation), "content": content}


@ROUTES.add("DELETE", "evaluations/{id}", ADMINISTER)
async def delete_evaluation(call: Call) -> None:
    """Delete an evaluation."""
    await call.protocol.evaluations.delete(call.loop, call.id)


def both(evaluation: Evaluation) -> dict[str, Any]:
    """Return what both forms of an evaluation have."""
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "startTime": timestamp(evaluation.start),
        "endTime": timestamp(evaluation.end),
        "evaluationType": "Manual",
        "optimalPolicy": evaluation.best,
        "creationTime": timestamp(evaluation.created),
    }


def evaluation_v1(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as the generations v1.x have it."""
    results = [
        {
            "name": policy.name,
            "arguments": policy.arguments,
            "policySource": policy.source,
            "summary": [summary_v1(span.start, 5, [span]) for span in policy.spans],
            "totalSummary": summary_v1(evaluation.start, 0, policy.spans),
        }
        for policy in evaluation.policies
    ]
    status = {"jobId": evaluation.id, "status": STATUSES[evaluation.status]}
    return {**both(evaluation), **status, "policyResults": results, "featureImportance": []}


def evaluation_2022(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as the generation of 2022 has it, without results."""
    return {**both(evaluation), "status": evaluation.status, "description": evaluation.note}


def summary_v1(start: float, minutes: int, spans: Sequence[EvaluationSpan]) -> dict[str, Any]:
    """Return the sums over stretches of time."""
    count = sum(span.count for span in spans)
    total, squares = sum(span.total for span in spans), sum(span.squares for span in spans)
    mean = total / count if count else 0.0
    spread = math.sqrt(max(squares / count - mean**2, 0.0) / count) if count else 0.0
    return {
        "timeStamp": timestamp(start),
        "ipsEstimatorNumerator": total,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": count,
        "aggregateTimeWindow": duration(60.0 * minutes),
        "nonZeroProbability": 1.0,
        "sumOfSquares": squares,
        "confidenceInterval": 1.96 * spread,
        "averageReward": mean,
    }


def expected(spans: Sequence[EvaluationSpan]) -> dict[str, Any]:
    """Return the mean over stretches of time, and its interval."""
    found = summary_v1(0.0, 0, spans)
    mean, half = found["averageReward"], found["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}


def series_2022(
    evaluation: Evaluation, start: float, end: float, minutes: int, expanding: bool
) -> dict[str, Any]:
    """Return the results over time."""
    value, length = [], 60.0 * minutes
    for policy in evaluation.policies:
        spans = [span for span in policy.spans if start <= span.start < end]
        data, so_far = list[Any](), list[EvaluationSpan]()
        for number, group in groupby(spans, lambda span: span.start // length):
            so_far = so_far * expanding + list(group)
            data.append({"timeStamp": timestamp(length * number), **expected(so_far)})
        value.append(
            {
                "name": policy.name,
                "arguments": policy.arguments,
                "policySource": policy.source,
                "slotId": "",
                "summary": expected(spans),
                "timeseries": {"data": data},
            }
        )
    ends = {"startTime": timestamp(start), "endTime": timestamp(end)}
    return {**ends, "intervalInMinutes": minutes, "value": value}


# Which features matter


async def all_importances(call: Call) -> dict[str, Any]:
    """Return what was found out about features, by id."""
    found = await call.service.documents(call.loop, KIND)
    return {id: msgspec.json.decode(body) for id, body in found.items()}


@ROUTES.add("GET", "featureImportances", ADMINISTER)
async def list_importances(call: Call) -> Any:
    """List all of them."""
    return paged(list((await all_importances(call)).values()), call.request)


@ROUTES.add("PUT", ONE, ADMINISTER, body=EvaluationContract, code=WRONG)
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
