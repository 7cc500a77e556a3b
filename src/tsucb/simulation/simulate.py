"""Play policies against an environment, run by run.

The loop (`tsucb.simulation.loop`) is written once. With environments, models and policies that
have compiled implementations it runs compiled; with a class of your own, written in plain Python,
the very same code is interpreted.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import whole_number
from tsucb.environments.environment import Environment
from tsucb.models.model import Model, trains
from tsucb.numeric.arrays import Integers
from tsucb.simulation.loop import Record, Run
from tsucb.simulation.result import Simulation
from tsucb.step import initial_pulls, require_model, runs_compiled
from tsucb.structure import side_by_side


def simulate(
    environment: Any,
    model: Any,
    policies: Sequence[Any] | Mapping[str, Any],
    *,
    horizon: int,
    runs: int | Sequence[int],
    seed: int = 0,
    workers: int | None = None,
    checkpoints: int | Sequence[int] = 100,
    keep_arms: bool = False,
    progress: bool | Callable[[int], None] = True,
) -> Simulation:
    """Play every policy against the environment, run by run, and record the regret.

    Regret is Σ (best available mean − mean of the arm played): means, not noisy rewards. In run r
    every policy meets the same parameters, contexts and noise. A run depends on `seed` and its
    number only, not on the other runs, the other policies or the number of workers.

    Parameters
    ----------
    environment
        From `tsucb.environments`, or any object with `arms`, `begin(rng)`,
        `advance(world, step, rng)` and `reward(world, arm)`.
    model
        From `tsucb.models`, or any object with `start(arms, rng)`,
        `belief(state, context, arms, step=…, rng=…)` and `update(state, context, arm, reward)`.
    policies
        Policies, or a mapping of names to policies; each any object with `choose(belief, rng)`.
        What is written in plain Python runs in the same loop, uncompiled: a hundred times slower.
    horizon
        T, the number of steps of a run.
    runs
        R, the number of runs, or the numbers of the runs to play.
    seed
        Changes everything random.
    workers
        Threads; all processor cores by default.
    checkpoints
        At how many steps, evenly spaced, the regret is recorded; or the steps themselves.
    keep_arms
        Also record which arm was played at every step.
    progress
        Show a bar on long work in a terminal, or call this with the steps played since last time.

    >>> import tsucb
    >>> bandit = tsucb.ContextualLinearBandit(arms=10, features=5)
    >>> result = tsucb.simulate(
    ...     bandit, bandit.model(), [tsucb.Thompson(), tsucb.TSUCB(1)], horizon=500, runs=20
    ... )
    >>> summary = result.summary(baseline="TS")
    >>> bool(summary.loc["TS-UCB(1)", "percent"] < 100)
    True
    """
    named = named_policies(policies)
    numbers = run_numbers(runs)
    marks = checkpoint_steps(horizon, checkpoints)
    seed = whole_number("seed", seed, least=0)
    threads = cores() if workers is None else whole_number("workers", workers)
    _check_match(environment, model, horizon)

    regret = np.full((len(named), len(numbers), marks.size), np.nan)
    shape = (len(named), len(numbers), horizon if keep_arms else 0)
    arms = np.zeros(shape, dtype=np.int64)
    stop = np.zeros(1, dtype=np.bool_)
    jobs = [(p, r) for r in range(len(numbers)) for p in range(len(named))]
    with reporting(progress, len(jobs) * horizon) as report:
        fast = all(runs_compiled(model, policy, environment) for policy in named.values())
        if not fast:
            threads = 1  # interpreted code holds the GIL: more threads would only be in the way
        pool = ThreadPoolExecutor(threads)
        rules = list(named.values())

        def ready(p: int, r: int) -> Run:
            record = Record(marks, regret[p, r], arms[p, r], stop, np.zeros(1))
            return Run(environment, model, rules[p], seed, numbers[r], record)

        def whole(p: int, r: int) -> int:
            run = ready(p, r)
            train = None
            while run.play_until(horizon) and run.played < horizon and not stop[0]:
                train = train or model.trainer([run.player.state])
                train()
            return horizon

        try:
            if fast and trains(model) and model.trains_together:
                runs_together = [ready(p, r) for p, r in jobs]
                _play_together(runs_together, model, horizon, threads, stop, report)
            else:
                futures: list[Future[int]] = [pool.submit(whole, p, r) for p, r in jobs]
                for future in as_completed(futures):
                    report(future.result())
        except BaseException:
            stop[0] = True  # running kernels leave at their next step
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return Simulation(tuple(named), numbers, marks, regret, arms if keep_arms else None)


def _play_together(
    runs: list[Run], model: Any, horizon: int, threads: int, stop: NDArray[np.bool_],
    report: Callable[[int], None],
) -> None:  # fmt: skip
    """Play all runs side by side, in two groups: while the models of one train, the other plays."""
    count = min(2, threads, len(runs))
    groups = [runs[number::count] for number in range(count)]
    deciders = max(1, threads // count)  # threads of each group
    reporting_in_turn = Lock()

    def play_group(group: list[Run]) -> None:
        states = side_by_side([run.player.state for run in group])
        for run, state in zip(group, states, strict=True):
            run.player = run.player._replace(state=state)
        train = model.trainer(states)
        shares = [group[number::deciders] for number in range(deciders)]
        with ThreadPoolExecutor(deciders) as pool:
            while group[0].played < horizon and not stop[0]:
                if group[0].played:
                    train()
                # A share that a single thread would play needs no other thread to be woken.
                for steps in (map if deciders == 1 else pool.map)(play_on, shares):
                    with reporting_in_turn:
                        report(steps)

    def play_on(share: list[Run]) -> int:
        return sum(run.play_until(horizon) for run in share)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(play_group, group) for group in groups]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop[0] = True  # or leaving would wait for all other groups
            raise


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def named_policies(policies: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """The policies by their names, or a sentence on what is wrong with them."""
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif hasattr(policies, "choose"):
        raise TypeError("policies must be a list, such as [tsucb.Thompson(), tsucb.TSUCB(1)]")
    else:
        names = [getattr(policy, "name", type(policy).__name__) for policy in policies]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(
                f"two policies are called {sorted(twice)[0]!r}; "
                "give a mapping of distinct names to policies instead of a list"
            )
        named = dict(zip(names, policies, strict=True))
    if not named:
        raise ValueError("no policy was given; give at least one")
    for name, policy in named.items():
        if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
            raise TypeError(f"policy {name!r} has no method choose(belief, rng); give an instance")
    return named


def run_numbers(runs: int | Sequence[int]) -> tuple[int, ...]:
    """The numbers of the runs to play."""
    numbers = tuple(range(runs)) if isinstance(runs, int | np.integer) else tuple(runs)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ValueError(f"runs must be a positive number or distinct run numbers, not {runs}")
    return numbers


def checkpoint_steps(horizon: int, checkpoints: int | Sequence[int]) -> Integers:
    """The steps at which the regret is recorded."""
    horizon = whole_number("horizon", horizon)
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 1:
            raise ValueError(f"at least one checkpoint is needed, but {checkpoints} were asked for")
        spaced = np.linspace(0, horizon, min(checkpoints, horizon) + 1)[1:]
        return np.unique(spaced.round().astype(np.int64))
    marks = np.unique(np.asarray(checkpoints, dtype=np.int64))
    if marks.size == 0 or marks[0] < 1 or marks[-1] > horizon:
        raise ValueError(f"checkpoints must be steps from 1 to the horizon {horizon}")
    return marks


def _check_match(environment: Any, model: Any, horizon: int) -> None:
    """Refuse a model that cannot read the environment's contexts, or a horizon too short for it."""
    if isinstance(environment, type) or not hasattr(environment, "arms"):
        raise TypeError(
            "environment must be an instance, such as tsucb.ContextualLinearBandit(10, 5), not "
            f"{environment}"
        )
    require_model(model)
    pulls = initial_pulls(model) * environment.arms
    if horizon < pulls:
        raise ValueError(
            f"the horizon of {horizon} is shorter than the {pulls} steps in which "
            f"{type(model).__name__} pulls each of {environment.arms} arms first; lengthen it"
        )
    longest = getattr(environment, "longest", horizon)
    if horizon > longest:
        raise ValueError(
            f"the horizon of {horizon:,} is beyond the {longest:,} rows of the data, "
            "each of which comes only once; shorten it"
        )
    if isinstance(model, Model) and isinstance(environment, Environment):
        given, expected = environment.context_shape, model.context_shape(environment.arms)
        if given != expected:
            raise ValueError(
                f"{type(environment).__name__} has contexts of shape {given}, "
                f"but {type(model).__name__} expects {expected}"
            )


@contextmanager
def reporting(
    progress: bool | Callable[[int], None], total: int
) -> Iterator[Callable[[int], None]]:
    """A function to call with the steps played since last time."""
    if callable(progress):
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda steps: bar.advance(task, steps)
