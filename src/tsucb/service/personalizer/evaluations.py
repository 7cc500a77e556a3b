"""Evaluations on the log, in both forms that clients know."""

import math
from typing import Any

import msgspec

from tsucb.service.evaluations import Evaluation
from tsucb.service.http import Call, HttpProblem, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.personalizer.policies import PolicyContract, learning_settings
from tsucb.service.personalizer.routes import CURRENT, ROUTES, paged
from tsucb.service.personalizer.times import duration, seconds_since, timestamp

WRONG = "InvalidEvaluationContract"


class EvaluationContract(msgspec.Struct, rename="camel"):
    """An evaluation to be made."""

    name: str
    start_time: str
    end_time: str
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


@ROUTES.add("POST", "evaluations", ADMINISTER, body=EvaluationContract, code=WRONG)
@ROUTES.add("PUT", "evaluations/*", ADMINISTER, body=EvaluationContract, code=WRONG)
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
    explore = asked.enable_offline_experimentation or asked.enable_policy_optimization
    evaluation = await call.evaluations.begin(
        call.loop, call.id or None, asked.name, start, end, policies, bool(explore)
    )
    if call.version == CURRENT:
        return evaluation_2022(evaluation)
    where = f"{call.request.raw_path.decode('latin-1').rstrip('/')}/{evaluation.id}"
    return json_answer(evaluation_v1(evaluation), 201, [(b"location", where.encode())])


@ROUTES.add("GET", "evaluations", ADMINISTER)
async def list_evaluations(call: Call) -> Any:
    """List all evaluations."""
    found = await call.evaluations.all(call.loop)
    if call.version != CURRENT:
        return [evaluation_v1(each) for each in found]
    return paged([evaluation_2022(each) for each in found], call.request)


@ROUTES.add("GET", "evaluations/*", ADMINISTER, code="InvalidRequest")
async def get_evaluation(call: Call) -> Any:
    """Return one evaluation, with its results over time."""
    evaluation = await call.evaluations.get(call.loop, call.id)
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


@ROUTES.add("DELETE", "evaluations/*", ADMINISTER)
async def delete_evaluation(call: Call) -> None:
    """Delete an evaluation."""
    await call.evaluations.delete(call.loop, call.id)


def evaluation_v1(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as the generations v1.x have it."""
    status = {"Succeeded": "completed", "Running": "pending", "Failed": "failed"}
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
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "startTime": timestamp(evaluation.start),
        "endTime": timestamp(evaluation.end),
        "jobId": evaluation.id,
        "status": status[evaluation.status],
        "policyResults": results,
        "featureImportance": [],
        "evaluationType": "Manual",
        "optimalPolicy": evaluation.best,
        "creationTime": timestamp(evaluation.created),
    }


def summary_v1(start: float, minutes: int, spans: list[Any]) -> dict[str, Any]:
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


def evaluation_2022(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as the generation of 2022 has it, without results."""
    return {
        "id": evaluation.id,
        "name": evaluation.name,
        "startTime": timestamp(evaluation.start),
        "endTime": timestamp(evaluation.end),
        "status": evaluation.status,
        "evaluationType": "Manual",
        "description": evaluation.note,
        "optimalPolicy": evaluation.best,
        "creationTime": timestamp(evaluation.created),
    }


def series_2022(
    evaluation: Evaluation, start: float, end: float, minutes: int, expanding: bool
) -> dict[str, Any]:
    """Return the results over time."""
    value = []
    for policy in evaluation.policies:
        spans = [span for span in policy.spans if start <= span.start < end]
        data, so_far = [], []
        groups: dict[int, list[Any]] = {}
        for span in spans:
            groups.setdefault(int(span.start // (60 * minutes)), []).append(span)
        for number, group in groups.items():
            so_far += group
            found = summary_v1(0.0, 0, so_far if expanding else group)
            data.append({"timeStamp": timestamp(60.0 * minutes * number), **expected(found)})
        value.append(
            {
                "name": policy.name,
                "arguments": policy.arguments,
                "policySource": policy.source,
                "slotId": "",
                "summary": expected(summary_v1(0.0, 0, spans)),
                "timeseries": {"data": data},
            }
        )
    return {
        "startTime": timestamp(start),
        "endTime": timestamp(end),
        "intervalInMinutes": minutes,
        "value": value,
    }


def expected(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the mean and its interval."""
    mean, half = summary["averageReward"], summary["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}
