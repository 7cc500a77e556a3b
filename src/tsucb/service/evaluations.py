"""Evaluations on the log of a loop, made in the background and kept."""

import asyncio
import json
import math
import secrets
from typing import Any

import msgspec
import numpy as np

from tsucb.service.errors import Conflict, NotFound
from tsucb.service.export import compared, judged
from tsucb.service.loop import Loop
from tsucb.service.service import Service, check_text

KIND = "evaluation"
MOST = 100_000  # events of the log that an evaluation looks at
SPAN = 300.0  # seconds
SUGGESTED = {"TS-UCB(1)": "TS-UCB(1)", "TS": "TS", "Greedy": "Greedy"}


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
    spans: list[EvaluationSpan] = []

    @property
    def mean(self) -> float:
        """Per decision."""
        count = sum(span.count for span in self.spans)
        return sum(span.total for span in self.spans) / count if count else math.nan


class Evaluation(msgspec.Struct):
    """An evaluation, whether done or not."""

    id: str
    name: str
    start: float
    end: float
    created: float
    custom: dict[str, str]
    status: str = "Running"
    policies: list[PolicyResult] = []
    best: str | None = None
    note: str = ""


class Evaluations:
    """Makes evaluations, one after the other, and keeps them in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def begin(
        self, loop: Loop, id: str | None, name: str, start: float, end: float,
        custom: dict[str, str], suggest: bool,
    ) -> Evaluation:  # fmt: skip
        """Begin one; `custom` are arguments by name, `suggest` adds some of our own."""
        if suggest:
            custom = {**SUGGESTED, **custom}
        id = id or secrets.token_hex(12)
        check_text("the id of an evaluation", id)
        if id in await self._service.documents(loop, KIND):
            raise Conflict(f"there is an evaluation {id!r} already")
        evaluation = Evaluation(id, name, start, end, self._service.clock(), custom)
        await self._keep(loop, evaluation)
        task = asyncio.create_task(self._run(loop, evaluation))
        self._running[loop.name, id] = task
        task.add_done_callback(lambda _: self._running.pop((loop.name, id), None))
        return evaluation

    async def _keep(self, loop: Loop, evaluation: Evaluation) -> None:
        body = msgspec.json.encode(evaluation)
        await self._service.put_document(loop, KIND, evaluation.id, body)

    async def _run(self, loop: Loop, evaluation: Evaluation) -> None:
        try:
            async with self._one_at_a_time:
                await self._service.turns.in_background(evaluate, self._service, loop, evaluation)
            evaluation.status = "Succeeded"
        except (ValueError, TypeError) as error:
            evaluation.status, evaluation.note = "Failed", str(error)
        if evaluation.id in await self._service.documents(loop, KIND):
            await self._keep(loop, evaluation)

    async def all(self, loop: Loop) -> list[Evaluation]:
        """All of a loop; those that a restart has cut off have failed."""
        found = []
        for id, body in (await self._service.documents(loop, KIND)).items():
            evaluation = msgspec.json.decode(body, type=Evaluation)
            if evaluation.status == "Running" and (loop.name, id) not in self._running:
                evaluation.status, evaluation.note = "Failed", "the service was restarted"
            found.append(evaluation)
        return found

    async def get(self, loop: Loop, id: str) -> Evaluation:
        """One of them."""
        for evaluation in await self.all(loop):
            if evaluation.id == id:
                return evaluation
        raise NotFound(f"there is no evaluation {id!r}")

    async def delete(self, loop: Loop, id: str) -> None:
        """Delete one."""
        if not await self._service.delete_document(loop, KIND, id):
            raise NotFound(f"there is no evaluation {id!r}")


def evaluate(service: Service, loop: Loop, evaluation: Evaluation) -> None:
    """Fill in what every policy would have earned; blocks."""
    from tsucb.evaluation.compare import LOGGED

    table = judged(service, loop, MOST)
    inside = (table["time"] >= evaluation.start) & (table["time"] < evaluation.end)
    table = table[inside].reset_index(drop=True)
    if len(table) < 2:
        raise ValueError("there are no events in this time whose wait is over")
    agents: dict[str, Any] = {"Random": {"policy": "Random"}}
    for name, arguments in evaluation.custom.items():
        agents[name] = _agent_settings(arguments)
    found = compared(loop, table, agents)
    table = table.tail(found.decisions)
    online = f'{{"policy": "{loop.settings.policy}"}}'
    policies = [PolicyResult("Online", online, "Online", spans(found.time, found.terms[LOGGED]))]
    first = np.array([row[0] for row in table["arms"]]) == table["arm"].to_numpy()
    terms = np.where(first, table["reward"] / table["propensity"], 0.0)
    policies.append(
        PolicyResult("Baseline", "", "Baseline", spans(table["time"].to_numpy(), terms))
    )
    for name in agents:
        source = "Random" if name == "Random" else "Custom"
        result = spans(found.time, found.terms[name])
        policies.append(PolicyResult(name, evaluation.custom.get(name, ""), source, result))
    evaluation.policies = policies
    evaluation.best = max(policies, key=lambda policy: policy.mean).name
    evaluation.note = f"{found.decisions} events, by {found.method}"


def _agent_settings(arguments: str) -> dict[str, Any]:
    if arguments.lstrip().startswith("{"):
        found: dict[str, Any] = json.loads(arguments)
        return found
    return {"policy": arguments.strip()}


def spans(time: Any, terms: Any) -> list[EvaluationSpan]:
    """Contributions of decisions, five minutes by five minutes."""
    kept = ~np.isnan(terms)
    number, place = np.unique(np.floor(time[kept] / SPAN), return_inverse=True)
    count = np.bincount(place, minlength=number.size)
    total = np.bincount(place, terms[kept], number.size)
    squares = np.bincount(place, terms[kept] ** 2, number.size)
    return [
        EvaluationSpan(float(n * SPAN), int(c), float(t), float(s))
        for n, c, t, s in zip(number, count, total, squares, strict=True)
    ]


def importances(loop: Loop) -> list[dict[str, Any]]:
    """How far from 0 the coefficients of a feature are, in standard deviations, over the arms."""
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
            row = {"namespace": space, "featureName": feature, "score": float(score)}
            rows.append(row)
    return rows
