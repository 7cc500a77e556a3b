"""Evaluations on the log, in both forms that clients know."""

import math
from typing import Any

import msgspec

from tsucb.service.evaluations import Evaluation, Evaluations
from tsucb.service.http import Answer, HttpProblem, Request, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.policies import PolicyContract, learning_settings
from tsucb.service.personalizer.routes import Route, Routes, Version, paged
from tsucb.service.personalizer.times import duration, seconds_since, timestamp


class EvaluationContract(msgspec.Struct, rename="camel"):
    """An evaluation to be made."""

    name: str
    start_time: str
    end_time: str
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


class Evaluating:
    """Operations on evaluations."""

    def __init__(self, evaluations: Evaluations) -> None:
        self.evaluations = evaluations

    def routes(self) -> Routes:
        """What is answered here."""
        put = Route(ADMINISTER, "InvalidEvaluationContract", self.put_evaluation)
        return {
            ("GET", "evaluations"): Route(ADMINISTER, "BadRequest", self.list_evaluations),
            ("POST", "evaluations"): put,
            ("PUT", "evaluations/*"): put,
            ("GET", "evaluations/*"): Route(ADMINISTER, "InvalidRequest", self.get_evaluation),
            ("DELETE", "evaluations/*"): Route(ADMINISTER, "BadRequest", self.delete_evaluation),
        }

    async def put_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Begin an evaluation; it is done in the background."""
        asked = msgspec.json.decode(request.body, type=EvaluationContract)
        start, end = seconds_since(asked.start_time), seconds_since(asked.end_time)
        if not start < end:
            raise ValueError("the evaluation ends before it starts")
        policies = {}
        for policy in asked.policies or []:
            if policy.name in policies:
                raise HttpProblem(
                    400, "DuplicateCustomPolicyNames", f"{policy.name!r} is there twice"
                )
            learning_settings(policy.arguments)
            policies[policy.name] = policy.arguments
        explore = asked.enable_offline_experimentation or asked.enable_policy_optimization
        evaluation = await self.evaluations.begin(
            loop, id or None, asked.name, start, end, policies, bool(explore)
        )
        if version.current:
            return json_answer(evaluation_2022(evaluation), 200)
        where = f"{request.raw_path.decode('latin-1').rstrip('/')}/{evaluation.id}"
        return json_answer(evaluation_v1(evaluation), 201, [(b"location", where.encode())])

    async def list_evaluations(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """All evaluations."""
        found = await self.evaluations.all(loop)
        if not version.current:
            return json_answer([evaluation_v1(each) for each in found])
        return paged([evaluation_2022(each) for each in found], request)

    async def get_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """One evaluation, with its results over time."""
        evaluation = await self.evaluations.get(loop, id)
        if not version.current:
            return json_answer(evaluation_v1(evaluation))
        query = request.query
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
        return json_answer({**evaluation_2022(evaluation), "content": content})

    async def delete_evaluation(
        self, loop: Loop, request: Request, id: str, version: Version
    ) -> Answer:
        """Delete an evaluation."""
        await self.evaluations.delete(loop, id)
        return Answer(204)


def evaluation_v1(evaluation: Evaluation) -> dict[str, Any]:
    """As the generations v1.x have it."""
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
    """Sums over stretches of time."""
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
    """As the generation of 2022 has it, without results."""
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
    """The results over time."""
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
    """Mean and interval."""
    mean, half = summary["averageReward"], summary["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}
