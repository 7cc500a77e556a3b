"""What other configurations would have earned on the log of a loop; evaluations that are kept."""

import asyncio
import json
import math
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tsucb.service.errors import Conflict, NotFound
from tsucb.service.export import recent
from tsucb.service.loop import Loop
from tsucb.service.service import Service, check_text
from tsucb.service.settings import FREE_MODEL

if TYPE_CHECKING:
    import pandas as pd

    from tsucb.evaluation.compare import Comparison

KIND = "evaluation"
MOST_EVENTS = 100_000  # that a comparison looks at
MOST_NUMBERS = 10_000_000  # decisions times arms
SPAN = 300.0  # seconds
SUGGESTED = {"TS-UCB(1)": "TS-UCB(1)", "TS": "TS", "Greedy": "Greedy"}


def comparison(
    service: Service, loop: Loop, agents: dict[str, dict[str, Any]], most: int
) -> dict[str, Any]:
    """Return what other configurations would have earned on the last decisions; blocks."""
    table = judged(service, loop, most)
    if len(table) < 2:
        raise ValueError("there are not enough decisions whose wait is over; try again later")
    found = compared(loop, table, agents)
    return {
        "decisions": found.decisions,
        "method": found.method,
        "configurations": found.table().to_dict("records"),
        "pairs": found.pairs().to_dict("records"),
    }


def judged(service: Service, loop: Loop, most: int) -> "pd.DataFrame":
    """Return the last decisions of which all is known that ever will be."""
    table = recent(service, loop, min(max(most, 1), MOST_EVENTS))
    # Decisions that still wait are too young to be judged, even those whose reward came early.
    done = table["time"] + loop.settings.reward_wait <= loop.now
    return table[done & table["reward"].notna()].reset_index(drop=True)


def compared(loop: Loop, table: "pd.DataFrame", agents: dict[str, dict[str, Any]]) -> "Comparison":
    """Compare configurations on decisions; what they do not say is as the loop has it."""
    from tsucb.evaluation.compare import compare

    settings = loop.settings
    usual: dict[str, Any] = {"policy": settings.policy, "forgetting": settings.forgetting}
    if settings.model != FREE_MODEL:
        usual["model"] = settings.model
    if not table["context"].isna().all():  # to the model, none is one without features
        table = table.assign(context=table["context"].fillna("{}"))
    # A comparison has a number for every decision and every arm that the log ever saw.
    arms = len({arm for offered in table["arms"] for arm in offered})
    table = table.tail(max(MOST_NUMBERS // arms, 2)).reset_index(drop=True)
    draws = 3 if settings.arms_come else 10  # agents that are asked one by one take longer
    return compare(table, {name: {**usual, **given} for name, given in agents.items()}, draws=draws)


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
    """An evaluation, whether done or not; `custom` are arguments of policies by their names."""

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

    async def begin(self, loop: Loop, evaluation: Evaluation) -> None:
        """Begin an evaluation; with an empty id it gets one."""
        evaluation.id = id = evaluation.id or secrets.token_hex(12)
        check_text("the id of an evaluation", id)
        if id in await self._service.documents(loop, KIND):
            raise Conflict(f"there is an evaluation {id!r} already")
        await self._keep(loop, evaluation)
        task = asyncio.create_task(self._run(loop, evaluation))
        self._running[loop.name, id] = task
        task.add_done_callback(lambda _: self._running.pop((loop.name, id), None))

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

    async def all(self, loop: Loop) -> dict[str, Evaluation]:
        """Return all of a loop by their ids; those that a restart has cut off have failed."""
        found = {}
        for id, body in (await self._service.documents(loop, KIND)).items():
            found[id] = evaluation = msgspec.json.decode(body, type=Evaluation)
            if evaluation.status == "Running" and (loop.name, id) not in self._running:
                evaluation.status, evaluation.note = "Failed", "the service was restarted"
        return found

    async def get(self, loop: Loop, id: str) -> Evaluation:
        """Return one of them."""
        found = await self.all(loop)
        if id not in found:
            raise NotFound(f"there is no evaluation {id!r}")
        return found[id]

    async def delete(self, loop: Loop, id: str) -> None:
        """Delete one."""
        if not await self._service.delete_document(loop, KIND, id):
            raise NotFound(f"there is no evaluation {id!r}")


def evaluate(service: Service, loop: Loop, evaluation: Evaluation) -> None:
    """Fill in what every policy would have earned; blocks."""
    from tsucb.evaluation.compare import LOGGED

    table = judged(service, loop, MOST_EVENTS)
    inside = (table["time"] >= evaluation.start) & (table["time"] < evaluation.end)
    table = table[inside].reset_index(drop=True)
    if len(table) < 2:
        raise ValueError("there are no events in this time whose wait is over")
    agents: dict[str, Any] = {"Random": {"policy": "Random"}}
    for name, arguments in evaluation.custom.items():
        is_json = arguments.lstrip().startswith("{")
        agents[name] = json.loads(arguments) if is_json else {"policy": arguments.strip()}
    found = compared(loop, table, agents)
    table = table.tail(found.decisions)
    first = np.array([row[0] for row in table["arms"]]) == table["arm"].to_numpy()
    baseline = np.where(first, table["reward"] / table["propensity"], 0.0)
    online = f'{{"policy": "{loop.settings.policy}"}}'
    evaluation.policies = [
        PolicyResult("Online", online, "Online", spans(found.time, found.terms[LOGGED])),
        PolicyResult("Baseline", "", "Baseline", spans(table["time"].to_numpy(), baseline)),
    ]
    for name in agents:
        source = "Random" if name == "Random" else "Custom"
        result = spans(found.time, found.terms[name])
        arguments = evaluation.custom.get(name, "")
        evaluation.policies.append(PolicyResult(name, arguments, source, result))
    evaluation.best = max(evaluation.policies, key=lambda policy: policy.mean).name
    evaluation.note = f"{found.decisions} events, by {found.method}"


def spans(time: Any, terms: Any) -> list[EvaluationSpan]:
    """Return the contributions of decisions, five minutes by five minutes."""
    kept = ~np.isnan(terms)
    number, place = np.unique(np.floor(time[kept] / SPAN), return_inverse=True)
    count = np.bincount(place, minlength=number.size)
    total, squares = (np.bincount(place, terms[kept] ** n, number.size) for n in (1, 2))
    columns = (SPAN * number).tolist(), count.tolist(), total.tolist(), squares.tolist()
    return [EvaluationSpan(*row) for row in zip(*columns, strict=True)]


def importances(loop: Loop) -> list[dict[str, Any]]:
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
