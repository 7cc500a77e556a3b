"""`tsucb warm`: compile ahead, for a container image or a service that must not wait later."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from typing import Annotated, Any

import typer

import tsucb
from tsucb.files import cache_folder
from tsucb.paper.experiments.processes import processes
from tsucb.simulation import cores

FEW, MANY = 5, 50  # features; linear models have one memory layout for few and one for many


def warm(
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes; default: one per core.", show_default=False, min=1, max=1_000
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Only this model, such as AdaptiveLinear.", show_default=False),
    ] = None,
) -> None:
    """Compile agents ahead, so that no first decision has to wait.

    All policies with all models but networks and those of your own.
    """
    tasks = [name for name in models() if only in (None, name.partition(" ")[0])]
    if not tasks:
        known = ", ".join(dict.fromkeys(name.partition(" ")[0] for name in models()))
        raise ValueError(f"unknown model {only!r}; give one of {known}")
    begin = time.perf_counter()
    # Compile what all agents share once, before the processes start.
    decide(tsucb.Agent(["a", "b"], FEW), FEW)
    with processes(workers or cores()) as pool:
        jobs = {pool.submit(compile_all, name): name for name in tasks}
        for job in as_completed(jobs):
            typer.echo(f"{jobs[job]}: {job.result()} policies")
    spent = time.perf_counter() - begin
    typer.echo(f"compiled in {spent:.0f} s into {cache_folder()}")


def models() -> dict[str, Any]:
    """Return the models to compile by name; linear ones in both memory layouts."""
    found: dict[str, Any] = {}
    for d in (FEW, MANY):
        for model in (
            tsucb.AdaptiveLinear(d), tsucb.NIGLinear(d), tsucb.ContextualLinear(d, noise=1.0)
        ):  # fmt: skip
            found[f"{type(model).__name__} with {d} features"] = model
    found["Linear"] = tsucb.Linear(FEW)
    for arms in (tsucb.BernoulliArms, tsucb.GaussianArms, tsucb.PoissonArms):
        found[arms.__name__] = arms()
    return found


def policies() -> Iterator[Any]:
    """Yield one policy of every kind that compiles on its own, and the default with a floor."""
    yield from (tsucb.TSUCB(1), tsucb.TSUCB(math.inf), tsucb.Thompson(), tsucb.Greedy())
    yield from (tsucb.IDS(10), tsucb.IDS(math.inf), tsucb.Random(), tsucb.BayesUCB())
    yield from (tsucb.UCB1(), tsucb.OFUL(), tsucb.Exploring(tsucb.TSUCB(1), 0.05))


def compile_all(name: str) -> int:
    """Let agents with one model and every policy decide and learn; return how many agents."""
    model, count = models()[name], 0
    for policy in policies():
        decide(tsucb.Agent(["a", "b"], model=model, policy=policy), *model.context_shape(1)[-1:])
        count += 1
    return count


def decide(agent: Any, features: int = 0) -> None:
    """Make one decision and reward it."""
    row = [1.0] * features
    per_arm = isinstance(agent.model, tsucb.Linear)
    context = {"a": row, "b": row} if per_arm else row if features else None
    decision = agent.choose(context)
    agent.reward(decision.id, 1.0)
