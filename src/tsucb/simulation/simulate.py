"""Play policies against an environment, run by run.

The loop (`tsucb.simulation.loop`) runs compiled if environment, model and policies have compiled
implementations; with a class in plain Python the same code is interpreted.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import whole_number
from tsucb.environments.environment import Environment
from tsucb.models.model import Model, trains
from tsucb.models.structure import side_by_side
from tsucb.numeric.arrays import Integers
from tsucb.policies.names import check_policy
from tsucb.simulation.loop import Run, RunRecord
from tsucb.simulation.result import Simulation
from tsucb.step import initial_pulls, require_model, runs_compiled


# The public entry of all experiments: a long description, and a keyword for every choice.
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
        A list of policies, or a mapping of names to policies. A policy is any object with
        `choose(belief, rng)`, or a printed name such as "TS-UCB(10)". With a class in plain Python
        the loop is interpreted: a hundred times slower.
    horizon
        T, the number of steps of a run.
    runs
        R, the number of runs, or the numbers of the runs to play.
    seed
        Seed of all randomness.
    workers
        Threads; all processor cores by default.
    checkpoints
        The number of evenly spaced steps at which to record the regret, or the steps themselves.
    keep_arms
        Also record the arm played at every step.
    progress
        Show a bar in a terminal, or call this function with the steps played since its last call,
        from any thread but only once at a time.

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
    _check_match(environment, model, named, horizon)

    regret = np.full((len(named), len(numbers), marks.size), np.nan)
    shape = (len(named), len(numbers), horizon if keep_arms else 0)
    arms, stop = np.zeros(shape, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    starts = []  # each makes a run when its turn comes, so that few states exist at a time
    for r, number in enumerate(numbers):
        for p, policy in enumerate(named.values()):
            record = RunRecord(marks, regret[p, r], arms[p, r], stop, np.zeros(1))
            starts.append(partial(Run, environment, model, policy, seed, number, record))
    groups = [[start] for start in starts]
    fast = all(runs_compiled(model, policy, environment) for policy in named.values())
    if not fast:
        threads = 1  # interpreted code holds the GIL, so threads would only wait for each other
    elif trains(model) and model.trains_together:
        count = min(2, threads, len(starts))  # one group trains while the other plays
        groups = [starts[number::count] for number in range(count)]
    with reporting(progress, len(starts) * horizon) as report:
        _play(groups, model, horizon, threads, stop, report)
    return Simulation(tuple(named), numbers, marks, regret, arms if keep_arms else None)


def _play(
    groups: Sequence[Sequence[Callable[[], Run]]], model: Any, horizon: int, threads: int,
    stop: NDArray[np.bool_], report: Callable[[int], None],
) -> None:  # fmt: skip
    """Play groups of runs, as many at once as there are threads; a group's runs train together."""
    at_once = min(threads, len(groups))
    one_report_at_a_time = Lock()

    def play_group(starts: Sequence[Callable[[], Run]]) -> None:
        group, train = [start() for start in starts], None
        if len(group) > 1:
            states = side_by_side([run.player.state for run in group])
            for run, state in zip(group, states, strict=True):
                run.player = run.player._replace(state=state)
        deciders = min(threads // at_once, len(group))
        shares = [group[number::deciders] for number in range(deciders)]
        with ThreadPoolExecutor(deciders) as pool:
            while group[0].played < horizon and not stop[0]:
                if group[0].played:
                    train = train or model.trainer([run.player.state for run in group])
                    train()
                # A single share is played in this thread, without waking another.
                for steps in (map if deciders == 1 else pool.map)(play_on, shares):
                    with one_report_at_a_time:
                        report(steps)

    def play_on(share: list[Run]) -> int:
        return sum(run.play_until(horizon) for run in share)

    pool = ThreadPoolExecutor(at_once)
    try:
        for future in as_completed([pool.submit(play_group, group) for group in groups]):
            future.result()
    except BaseException:
        stop[0] = True  # loops end at their next step; a thread that compiles is not waited for
        raise
    finally:
        pool.shutdown(wait=not stop[0], cancel_futures=True)


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def named_policies(policies: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the policies by name; raise an error if there are none, or two of the same name."""
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif isinstance(policies, str) or hasattr(policies, "choose"):
        raise TypeError("policies must be a list, such as [tsucb.Thompson(), tsucb.TSUCB(1)]")
    else:
        policies = [check_policy(policy) for policy in policies]
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
    return {name: check_policy(policy, f"policy {name!r}") for name, policy in named.items()}


def run_numbers(runs: int | Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the runs to play."""
    numbers = tuple(range(runs)) if isinstance(runs, int | np.integer) else tuple(runs)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ValueError(f"runs must be a positive number or distinct run numbers, not {runs}")
    return numbers


def checkpoint_steps(horizon: int, checkpoints: int | Sequence[int]) -> Integers:
    """Return the steps at which the regret is recorded."""
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


def _check_match(environment: Any, model: Any, named: Mapping[str, Any], horizon: int) -> None:
    """Raise an error if environment, model, policies and horizon do not fit together."""
    if isinstance(environment, type) or not hasattr(environment, "arms"):
        raise TypeError(
            "environment must be an instance, such as tsucb.ContextualLinearBandit(10, 5), not "
            f"{environment}"
        )
    require_model(model)
    if isinstance(environment, Environment):
        environment.check_players(model, named.values())
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
    """Yield the function to call with the steps played since the last call."""
    if callable(progress):
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield lambda steps: None
        return
    done = 0

    def show(steps: int) -> None:
        nonlocal done
        done += steps
        print(f"\r{done / total:4.0%} of {total:,} steps", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # clear the line
