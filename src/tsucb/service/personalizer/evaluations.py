"""Evaluations of policies on the log, in the forms of both generations; feature importances."""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, Literal

import msgspec
import numpy as np

from tsucb.service.errors import Conflict, HttpProblem, NotFound, Problem, StoreError
from tsucb.service.export import MOST_EVENTS, RecentLog, compare_on_table
from tsucb.service.http import Call, encode, json_answer
from tsucb.service.keys import ADMINISTER
from tsucb.service.loop import Loop
from tsucb.service.personalizer.configuration import PolicyContract, learning_settings
from tsucb.service.personalizer.routes import (
    CURRENT,
    ROUTES,
    WHO,
    Skip,
    Top,
    duration,
    moment,
    one_page,
    seconds_since,
)
from tsucb.service.scheduling import in_process
from tsucb.service.service import Service, check_text

WRONG = "InvalidEvaluationContract"
EVALUATION, IMPORTANCE = "evaluation", "importance"  # kinds of documents
STATUSES = {"Succeeded": "completed", "Running": "pending", "Failed": "failed"}  # for v1.x
INTERNAL = "custom", "policies", "server"  # fields of documents that answers do not have
SPAN = 300.0  # seconds of a span of results
RETRY = 1.0  # seconds until an evaluation is written again after the store failed
SUGGESTED = {"TS-UCB(1)": "TS-UCB(1)", "TS": "TS", "Greedy": "Greedy"}


class EvaluationContract(msgspec.Struct, rename="camel"):
    """A request for an evaluation, or for feature importances."""

    name: str
    start_time: datetime
    end_time: datetime
    policies: list[PolicyContract] | None = None
    enable_offline_experimentation: bool | None = False
    enable_policy_optimization: bool | None = False


class SeriesQuery(msgspec.Struct, rename="camel"):
    """The results of an evaluation that a client wants."""

    start_time: datetime
    end_time: datetime
    interval_in_minutes: Literal[5, 60, 360, 720, 1440] = 5
    window: Literal["Expanding", "Rolling"] = "Expanding"


# Evaluations and feature importances are documents of the store, with the names of clients. An
# evaluation also has `custom`, the arguments of policies by their names, `server`, the name of the
# store of the process that makes it, and `policies`, each with `spans` of five minutes: their
# start, and the number, the sum and the sum of squares of the terms of their decisions. The mean of
# these terms estimates the value of the policy.


def evaluate(
    service: Service, loop: Loop, evaluation: dict[str, Any], start: float, end: float
) -> None:
    """Fill in the results of all policies of an evaluation; blocks."""
    log = RecentLog.of(service, loop, MOST_EVENTS)
    evaluation |= in_process(results, log, evaluation["custom"], start, end)


def results(log: RecentLog, custom: dict[str, str], start: float, end: float) -> dict[str, Any]:
    """Return the results of all policies of an evaluation."""
    from tsucb.evaluation.compare import LOGGED

    table, settings = log.judged(), log.settings
    table = table[(table["time"] >= start) & (table["time"] < end)].reset_index(drop=True)
    if len(table) < 2:
        raise ValueError("there are no events in this time whose wait is over")
    agents = {name: learning_settings(text) for name, text in custom.items()}
    found = compare_on_table(settings, table, {"Random": {"policy": "Random"}, **agents})
    table = table.tail(found.decisions)
    first = np.array([row[0] for row in table["arms"]]) == table["arm"].to_numpy()
    baseline = np.where(first, table["reward"] / table["propensity"], 0.0)
    online = f'{{"policy": "{settings.policy}"}}'
    policies = [
        result("Online", online, "Online", found.time, found.terms[LOGGED]),
        result("Baseline", "", "Baseline", table["time"].to_numpy(), baseline),
        result("Random", "", "Random", found.time, found.terms["Random"]),
        *(result(n, text, "Custom", found.time, found.terms[n]) for n, text in custom.items()),
    ]
    best = max(policies, key=lambda policy: summary(policy["spans"])["averageReward"])
    description = f"{found.decisions} events, by {found.method}"
    return {"policies": policies, "optimalPolicy": best["name"], "description": description}


def result(name: str, arguments: str, source: str, time: Any, terms: Any) -> dict[str, Any]:
    """Return the results of a policy, from the time and the term of every decision."""
    known = ~np.isnan(terms)
    number, place = np.unique(np.floor(time[known] / SPAN), return_inverse=True)
    count = np.bincount(place, minlength=number.size)
    total, squares = (np.bincount(place, terms[known] ** n, number.size) for n in (1, 2))
    columns = (SPAN * number).tolist(), count.tolist(), total.tolist(), squares.tolist()
    spans = list(zip(*columns, strict=True))
    return {"name": name, "arguments": arguments, "source": source, "spans": spans}


@ROUTES.add("POST", "evaluations", ADMINISTER, code=WRONG)
@ROUTES.add("PUT", "evaluations/{id}", ADMINISTER, code=WRONG)
async def put_evaluation(call: Call, body: EvaluationContract) -> Any:
    """Begin an evaluation in the background."""
    start, end = seconds_since(body.start_time), seconds_since(body.end_time)
    if not start < end:
        raise ValueError("the evaluation ends before it starts")
    policies: dict[str, str] = {}
    for policy in body.policies or []:
        if policy.name in policies:
            raise HttpProblem(400, "DuplicateCustomPolicyNames", f"{policy.name!r} is there twice")
        learning_settings(policy.arguments)
        policies[policy.name] = policy.arguments
    if body.enable_offline_experimentation or body.enable_policy_optimization:
        policies = {**SUGGESTED, **policies}
    id = call.id if call.path_values else secrets.token_hex(12)
    check_text("the id of an evaluation", id)
    if id in await call.service.documents(call.loop, EVALUATION):
        raise Conflict(f"there is an evaluation {id!r} already")
    evaluation = {
        **document(call, id, body),
        "custom": policies,
        "policies": [],
        "evaluationType": "Manual",
        "optimalPolicy": None,
        "status": "Running",
        "description": "",
        "server": call.service.store.name,
    }
    await keep(call, evaluation)
    running, name = call.protocol.running, (call.loop.name, id)
    running[name] = call.service.turns.begin(run(call, evaluation, start, end))
    running[name].add_done_callback(lambda _: running.pop(name, None))
    if call.version == CURRENT:
        return as_answer(evaluation, call)
    where = f"{call.raw_path.decode('latin-1').rstrip('/')}/{id}"
    return json_answer(as_answer(evaluation, call), 201, [(b"location", where.encode())])


def document(call: Call, id: str, asked: EvaluationContract) -> dict[str, Any]:
    """Return the fields that both kinds of documents have."""
    return {
        "id": id,
        "name": asked.name,
        "startTime": asked.start_time,
        "endTime": asked.end_time,
        "creationTime": moment(call.service.clock()),
    }


async def keep(call: Call, evaluation: dict[str, Any]) -> None:
    """Write an evaluation to the store."""
    await call.service.put_document(call.loop, EVALUATION, evaluation["id"], encode(evaluation))


async def run(call: Call, evaluation: dict[str, Any], start: float, end: float) -> None:
    """Make an evaluation after those begun before it; store it unless it was deleted meanwhile."""
    try:
        async with call.protocol.one_at_a_time:
            await call.service.turns.at_length(
                "asked", evaluate, call.service, call.loop, evaluation, start, end
            )
        evaluation["status"] = "Succeeded"
    except (ValueError, TypeError, Problem) as error:
        evaluation |= {"status": "Failed", "description": str(error)}
    while True:
        with contextlib.suppress(StoreError):
            if evaluation["id"] in await call.service.documents(call.loop, EVALUATION):
                await keep(call, evaluation)
            return
        await asyncio.sleep(RETRY)  # the store is away


@ROUTES.add(
    "POST", "configurations/applyFromEvaluation", ADMINISTER, code="LearningSettingsNotFound"
)
async def apply(call: Call, *, evaluation_id: str, policy_name: str) -> None:
    """Apply the learning settings of a policy of an evaluation."""
    evaluation = (await documents(call, EVALUATION)).get(evaluation_id)
    if evaluation is None:
        raise NotFound(f"there is no evaluation {evaluation_id!r}")
    sources = {policy["name"]: policy["source"] for policy in evaluation["policies"]}
    if sources.get(policy_name) not in ("Online", "Custom"):
        message = f"the evaluation has no learning settings {policy_name!r} to apply"
        raise HttpProblem(404, "LearningSettingsNotFound", message)
    if (arguments := evaluation["custom"].get(policy_name)) is not None:
        await call.service.configure(call.loop, learning_settings(arguments), WHO)


@ROUTES.add("PUT", "featureImportances/{id}", ADMINISTER, code=WRONG)
async def put_importance(call: Call, body: EvaluationContract) -> Any:
    """Compute and store the importances that features have now."""
    check_text("the id of a feature importance", call.id)
    scores = await call.service.look(call.loop, partial(feature_scores, call.loop))
    found = {**document(call, call.id, body), "status": "Succeeded", "featureScores": scores}
    await call.service.put_document(call.loop, IMPORTANCE, call.id, encode(found))
    return found


@ROUTES.add("GET", "evaluations", ADMINISTER)
@ROUTES.add("GET", "featureImportances", ADMINISTER)
async def list_documents(call: Call, *, skip: Skip = 0, top: Top = 100) -> Any:
    """List all evaluations, or all feature importances."""
    known = (await documents(call, kind_of(call))).values()
    found = await asyncio.to_thread(lambda: [as_answer(each, call) for each in known])
    return one_page(found, call, skip, top) if call.version == CURRENT else found


@ROUTES.add("GET", "evaluations/{id}", ADMINISTER, code="InvalidRequest")
@ROUTES.add("GET", "featureImportances/{id}", ADMINISTER)
async def get_document(call: Call) -> Any:
    """Return an evaluation, with its results over time, or feature importances."""
    found = await one_of(call)
    answer = await asyncio.to_thread(as_answer, found, call)
    if call.version == CURRENT and "policies" in found:
        query = msgspec.convert(call.query, SeriesQuery, strict=False)
        answer["content"] = await asyncio.to_thread(series, found["policies"], query)
    return answer


@ROUTES.add("DELETE", "evaluations/{id}", ADMINISTER)
@ROUTES.add("DELETE", "featureImportances/{id}", ADMINISTER)
async def delete_document(call: Call) -> None:
    """Delete an evaluation, or feature importances."""
    await one_of(call)
    await call.service.delete_document(call.loop, kind_of(call), call.id)


def kind_of(call: Call) -> str:
    """Return the kind of document in the path of a call."""
    return EVALUATION if call.path[0] == "evaluations" else IMPORTANCE


async def documents(call: Call, kind: str) -> dict[str, dict[str, Any]]:
    """Return the documents of a kind by id; unfinished evaluations of a gone server have failed."""
    store, running = call.service.store, call.protocol.running
    servers, before = await asyncio.to_thread(store.servers), list(running)
    bodies = await call.service.documents(call.loop, kind)
    found = await asyncio.to_thread(
        lambda: {id: msgspec.json.decode(body) for id, body in bodies.items()}
    )
    # One may have ended, and its server stopped, while the documents were read.
    servers |= await asyncio.to_thread(store.servers)
    for id, each in found.items():
        here = each.get("server") == store.name
        name = call.loop.name, id
        goes_on = name in (*before, *running) if here else each.get("server") in servers
        if each["status"] == "Running" and not goes_on:
            each |= {"status": "Failed", "description": "the service was restarted"}
    return found


async def one_of(call: Call) -> dict[str, Any]:
    """Return the document in the path of a call; raise HttpProblem if there is none."""
    found = (await documents(call, kind_of(call))).get(call.id)
    if found is None:
        raise HttpProblem(404, "EvaluationNotFound", f"there is no evaluation {call.id!r}")
    return found


def as_answer(found: dict[str, Any], call: Call) -> dict[str, Any]:
    """Return a document in the form of the client's generation: v1.x gets all results."""
    answer = {name: value for name, value in found.items() if name not in INTERNAL}
    if call.version == CURRENT or "policies" not in found:
        return answer
    results = [
        {
            **head(policy),
            "summary": [summary([span], moment(span[0]), SPAN) for span in policy["spans"]],
            "totalSummary": summary(policy["spans"], found["startTime"]),
        }
        for policy in found["policies"]
    ]
    status = {"jobId": found["id"], "status": STATUSES[found["status"]]}
    return {**answer, **status, "policyResults": results, "featureImportance": []}


def head(policy: dict[str, Any]) -> dict[str, Any]:
    """Return the name, the arguments and the source of a policy."""
    about = {"name": policy["name"], "arguments": policy["arguments"]}
    return {**about, "policySource": policy["source"]}


def summary(spans: Sequence[Any], start: Any = None, length: float = 0.0) -> dict[str, Any]:
    """Return the sums over spans in the form of v1.x."""
    count, total, squares = (sum(span[column] for span in spans) for column in (1, 2, 3))
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


def expected(spans: Sequence[Any]) -> dict[str, Any]:
    """Return the mean over spans with its interval, in the form of 2022."""
    found = summary(spans)
    mean, half = found["averageReward"], found["confidenceInterval"]
    return {"expectedReward": mean, "confidenceInterval": [mean - half, mean + half]}


def series(policies: list[dict[str, Any]], query: SeriesQuery) -> dict[str, Any]:
    """Return the results of policies over time, in the form of 2022."""
    start, end = seconds_since(query.start_time), seconds_since(query.end_time)
    value, length = [], 60.0 * query.interval_in_minutes
    for policy in policies:
        inside = [span for span in policy["spans"] if start <= span[0] < end]
        data, so_far = list[Any](), [0.0] * 4
        for number, group in groupby(inside, lambda span: span[0] // length):
            before = [so_far] if query.window == "Expanding" else []
            so_far = [sum(column) for column in zip(*before, *group, strict=True)]
            data.append({"timeStamp": moment(length * number), **expected([so_far])})
        results = {"summary": expected(inside), "timeseries": {"data": data}}
        value.append({**head(policy), "slotId": "", **results})
    return {**msgspec.to_builtins(query), "value": value}


def feature_scores(loop: Loop) -> list[dict[str, Any]]:
    """Return the root mean square of mean / std of the coefficients of every feature."""
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
