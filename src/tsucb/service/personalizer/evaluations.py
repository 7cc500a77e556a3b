"""Evaluations on the log, in both forms that clients know, and which features matter."""

import asyncio
import math
import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, Literal

import msgspec
import numpy as np

from tsucb.service.errors import Conflict, HttpProblem
from tsucb.service.export import MOST_EVENTS, compare_on_log, judged_decisions
from tsucb.service.http import Call, encode, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.configuration import PolicyContract, learning_settings
from tsucb.service.personalizer.routes import (
    CURRENT,
    ROUTES,
    Skip,
    Top,
    duration,
    moment,
    one_page,
    seconds_since,
)
from tsucb.service.service import Service, check_text

WRONG = "InvalidEvaluationContract"
EVALUATION, IMPORTANCE = "evaluation", "importance"  # kinds of documents
KINDS = {"evaluations": EVALUATION, "featureImportances": IMPORTANCE}  # by the word in the path
STATUSES = {"Succeeded": "completed", "Running": "pending", "Failed": "failed"}  # of v1.x
SPAN = 300.0  # seconds
SUGGESTED = {"TS-UCB(1)": "TS-UCB(1)", "TS": "TS", "Greedy": "Greedy"}


class EvaluationContract(msgspec.Struct, rename="camel"):
    """An evaluation to be made."""

    name: str
    start_time: datetime
    end_time: datetime
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


class SeriesQuery(msgspec.Struct, rename="camel"):
    """Which results of an evaluation are wanted."""

    start_time: datetime
    end_time: datetime
    interval_in_minutes: Literal[5, 60, 360, 720, 1440] = 5
    window: Literal["Expanding", "Rolling"] = "Expanding"


class EvaluationSpan(msgspec.Struct, array_like=True):
    """Number, sum and sum of squares of what decisions in five minutes contribute."""

    start: float
    count: int
    total: float
    squares: float


class PolicyResult(msgspec.Struct):
    """What one policy would have earned."""

    name: str
    arguments: str
    source: str
    spans: list[EvaluationSpan]

    @property
    def head(self) -> dict[str, str]:
        """What answers say about the policy itself."""
        return {"name": self.name, "arguments": self.arguments, "policySource": self.source}


class Evaluation(msgspec.Struct, rename="camel"):
    """An evaluation, whether done or not; `custom` are arguments of policies by their names."""

    id: str
    name: str
    start_time: datetime
    end_time: datetime
    creation_time: datetime
    custom: dict[str, str]
    policies: list[PolicyResult] = []
    evaluation_type: str = "Manual"
    optimal_policy: str | None = None
    status: str = "Running"
    description: str = ""


class Evaluations:
    """Makes evaluations, one after the other, and keeps them in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def begin(self, loop: Loop, evaluation: Evaluation) -> None:
        """Begin an evaluation; with an empty id it gets one."""
        evaluation.id = id = evaluation.id or secrets.token_hex(12)
        check_text("the id of an evaluation", id)
        if id in await self._service.documents(loop, EVALUATION):
            raise Conflict(f"there is an evaluation {id!r} already")
        await self._keep(loop, evaluation)
        task = asyncio.create_task(self._run(loop, evaluation))
        self._running[loop.name, id] = task
        task.add_done_callback(lambda _: self._running.pop((loop.name, id), None))

    async def _keep(self, loop: Loop, evaluation: Evaluation) -> None:
        await self._service.put_document(loop, EVALUATION, evaluation.id, encode(evaluation))

    async def _run(self, loop: Loop, evaluation: Evaluation) -> None:
        try:
            async with self._one_at_a_time:
                await self._service.turns.in_background(evaluate, self._service, loop, evaluation)
            evaluation.status = "Succeeded"
        except (ValueError, TypeError) as error:
            evaluation.status, evaluation.description = "Failed", str(error)
        if evaluation.id in await self._service.documents(loop, EVALUATION):
            await self._keep(loop, evaluation)

    async def all(self, loop: Loop) -> dict[str, Evaluation]:
        """Return all of a loop by their ids; those that a restart has cut off have failed."""
        found = {}
        for id, body in (await self._service.documents(loop, EVALUATION)).items():
            found[id] = evaluation = msgspec.json.decode(body, type=Evaluation)
            if evaluation.status == "Running" and (loop.name, id) not in self._running:
                evaluation.status = "Failed"
                evaluation.description = "the service was restarted"
        return found


def evaluate(service: Service, loop: Loop, evaluation: Evaluation) -> None:
    """Fill in what every policy would have earned; blocks."""
    from tsucb.evaluation.compare import LOGGED

    start, end = seconds_since(evaluation.start_time), seconds_since(evaluation.end_time)
    table = judged_decisions(service, loop, MOST_EVENTS)
    table = table[(table["time"] >= start) & (table["time"] < end)].reset_index(drop=True)
    if len(table) < 2:
        raise ValueError("there are no events in this time whose wait is over")
    agents = {name: learning_settings(text) for name, text in evaluation.custom.items()}
    found = compare_on_log(loop, table, {"Random": {"policy": "Random"}, **agents})
    table = table.tail(found.decisions)
    first = np.array([row[0] for row in table["arms"]]) == table["arm"].to_numpy()
    baseline = np.where(first, table["reward"] / table["propensity"], 0.0)
    online = f'{{"policy": "{loop.settings.policy}"}}'
    evaluation.policies = [
        PolicyResult("Online", online, "Online", spans(found.time, found.terms[LOGGED])),
        PolicyResult("Baseline", "", "Baseline", spans(table["time"].to_numpy(), baseline)),
        PolicyResult("Random", "", "Random", spans(found.time, found.terms["Random"])),
    ]
    for name, arguments in evaluation.custom.items():
        result = spans(found.time, found.terms[name])
        evaluation.policies.append(PolicyResult(name, arguments, "Custom", result))
    evaluation.optimal_policy = max(
        evaluation.policies, key=lambda policy: summary(policy.spans)["averageReward"]
    ).name
    evaluation.description = f"{found.decisions} events, by {found.method}"


def spans(time: Any, terms: Any) -> list[EvaluationSpan]:
    """Return the contributions of decisions, five minutes by five minutes."""
    kept = ~np.isnan(terms)
    number, place = np.unique(np.floor(time[kept] / SPAN), return_inverse=True)
    count = np.bincount(place, minlength=number.size)
    total, squares = (np.bincount(place, terms[kept] ** n, number.size) for n in (1, 2))
    columns = (SPAN * number).tolist(), count.tolist(), total.tolist(), squares.tolist()
    return [EvaluationSpan(*row) for row in zip(*columns, strict=True)]


@ROUTES.add("POST", "evaluations", ADMINISTER, code=WRONG)
@ROUTES.add("PUT", "evaluations/{id}", ADMINISTER, code=WRONG)
async def put_evaluation(call: Call, body: EvaluationContract) -> Any:
    """Begin an evaluation; it is done in the background."""
    if not seconds_since(body.start_time) < seconds_since(body.end_time):
        raise ValueError("the evaluation ends before it starts")
    policies: dict[str, str] = {}
    for policy in body.policies or []:
        if policy.name in policies:
            raise HttpProblem(400, "DuplicateCustomPolicyNames", f"{policy.name!r} is there twice")
        learning_settings(policy.arguments)
        policies[policy.name] = policy.arguments
    if body.enable_offline_experimentation or body.enable_policy_optimization:
        policies = {**SUGGESTED, **policies}
    id, now = call.id if call.places else "", moment(call.service.clock())
    evaluation = Evaluation(id, body.name, body.start_time, body.end_time, now, policies)
    await call.protocol.evaluations.begin(call.loop, evaluation)
    if call.version == CURRENT:
        return as_answer(evaluation, call)
    where = f"{call.raw_path.decode('latin-1').rstrip('/')}/{evaluation.id}"
    return json_answer(as_answer(evaluation, call), 201, [(b"location", where.encode())])


@ROUTES.add("PUT", "featureImportances/{id}", ADMINISTER, code=WRONG)
async def put_importance(call: Call, body: EvaluationContract) -> Any:
    """Find out at once which features matter now."""
    check_text("the id of a feature importance", call.id)
    found = {
        "id": call.id,
        "name": body.name,
        "startTime": body.start_time,
        "endTime": body.end_time,
        "creationTime": moment(call.service.clock()),
        "status": "Succeeded",
        "featureScores": await call.service.look(call.loop, partial(feature_scores, call.loop)),
    }
    await call.service.put_document(call.loop, IMPORTANCE, call.id, encode(found))
    return found


@ROUTES.add("GET", "evaluations", ADMINISTER)
@ROUTES.add("GET", "featureImportances", ADMINISTER)
async def list_documents(call: Call, *, skip: Skip = 0, top: Top = 100) -> Any:
    """List all evaluations, or what was found out about features."""
    found = [as_answer(each, call) for each in (await documents(call)).values()]
    return one_page(found, call, skip, top) if call.version == CURRENT else found


@ROUTES.add("GET", "evaluations/{id}", ADMINISTER, code="InvalidRequest")
@ROUTES.add("GET", "featureImportances/{id}", ADMINISTER)
async def get_document(call: Call) -> Any:
    """Return one of them, an evaluation with its results over time."""
    found = one_of(await documents(call), call)
    if call.version != CURRENT or not isinstance(found, Evaluation):
        return as_answer(found, call)
    query = msgspec.convert(call.query, SeriesQuery, strict=False)
    return {**as_answer(found, call), "content": series(found, query)}


@ROUTES.add("DELETE", "evaluations/{id}", ADMINISTER)
@ROUTES.add("DELETE", "featureImportances/{id}", ADMINISTER)
async def delete_document(call: Call) -> None:
    """Delete one of them."""
    one_of(await documents(call), call)
    await call.service.delete_document(call.loop, KINDS[call.path[0]], call.id)


async def documents(call: Call) -> dict[str, Any]:
    """Return all of the kind that the path names, by their ids."""
    if KINDS[call.path[0]] == EVALUATION:
        return dict(await call.protocol.evaluations.all(call.loop))
    found = await call.service.documents(call.loop, IMPORTANCE)
    return {id: msgspec.json.decode(body) for id, body in found.items()}


def one_of(found: dict[str, Any], call: Call) -> Any:
    """Return the one that the path names; raise a HttpProblem if there is none."""
    if call.id not in found:
        raise HttpProblem(404, "EvaluationNotFound", f"there is no evaluation {call.id!r}")
    return found[call.id]


def as_answer(evaluation: Evaluation | dict[str, Any], call: Call) -> dict[str, Any]:
    """Return an evaluation as the client's generation has it, that of 2022 without results."""
    if isinstance(evaluation, dict):  # what was found out about features
        return evaluation
    found = msgspec.to_builtins(evaluation)
    del found["custom"], found["policies"]
    if call.version == CURRENT:
        return dict(found)
    results = [
        {
            **policy.head,
            "summary": [summary([span], moment(span.start), SPAN) for span in policy.spans],
            "totalSummary": summary(policy.spans, evaluation.start_time),
        }
        for policy in evaluation.policies
    ]
    status = {"jobId": evaluation.id, "status": STATUSES[evaluation.status]}
    return {**found, **status, "policyResults": results, "featureImportance": []}


def summary(
    spans: Sequence[EvaluationSpan], start: datetime | None = None, length: float = 0.0
) -> dict[str, Any]:
    """Return the sums over stretches of time."""
    count = sum(span.count for span in spans)
    total, squares = sum(span.total for span in spans), sum(span.squares for span in spans)
    mean = total / count if count else 0.0
    spread = math.sqrt(max(squares / count - mean**2, 0.0) / count) if count else 0.0
    return {
        "timeStamp": start,
        "ipsEstimatorNumerator": total,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": count,
        "aggregateTimeWindow": duration(length),
        "nonZeroProbability": 1.0,
        "sumOfSquares": squares,
        "confidenceInterval": 1.96 * spread,
        "averageReward": mean,
    }


def expected(spans: Sequence[EvaluationSpan]) -> dict[str, Any]:
    """Return the mean over stretches of time, and its interval."""
    found = summary(spans)
    mean, half = found["averageReward"], found["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}


def series(evaluation: Evaluation, query: SeriesQuery) -> dict[str, Any]:
    """Return the results over time."""
    start, end = seconds_since(query.start_time), seconds_since(query.end_time)
    value, length = [], 60.0 * query.interval_in_minutes
    for policy in evaluation.policies:
        inside = [span for span in policy.spans if start <= span.start < end]
        data, so_far = list[Any](), list[EvaluationSpan]()
        for number, group in groupby(inside, lambda span: span.start // length):
            so_far = so_far * (query.window == "Expanding") + list(group)
            data.append({"timeStamp": moment(length * number), **expected(so_far)})
        results = {"summary": expected(inside), "timeseries": {"data": data}}
        value.append({**policy.head, "slotId": "", **results})
    return {**msgspec.to_builtins(query), "value": value}


def feature_scores(loop: Loop) -> list[dict[str, Any]]:
    """Return how far from 0 the coefficients of features are, in standard deviations."""
    if loop.learner is None:
        return []
    table = loop.learner.coefficients()
    table = table[table["std"] > 0]
    ratio = (table["mean"] / table["std"]) ** 2
    scores = (ratio.groupby(level="feature").mean() ** 0.5).sort_values(ascending=False)
    rows = []
    for name, score in scores.items():
        space, _, feature = str(name).rpartition(".")
        if name != "constant" and not str(name).startswith("(column"):
            rows.append({"namespace": space, "featureName": feature, "score": float(score)})
    return rows
