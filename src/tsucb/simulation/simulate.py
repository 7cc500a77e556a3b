"""The one loop that every experiment runs through, and its results.

The loop is written once. With the package's own environments, models and policies it runs
compiled; with a class of your own, written in plain Python, the very same code is interpreted.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.compiled import compiled, implementations, inlined
from tsucb.environments.environment import Environment, advance, begin, pay
from tsucb.models.model import Model, believe, update
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.policy import choose
from tsucb.statistics import mean_interval, percent_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# The purposes of a run's random streams. Every policy of a run shares the world's stream, so it
# meets the same parameters, contexts and noise: comparisons are paired.
WORLD, POLICY, MODEL = 0, 1, 2


def stream(seed: int, run: int, purpose: int) -> np.random.Generator:
    """The random stream of one run for one purpose, whatever else is run beside it."""
    return np.random.default_rng(np.random.SeedSequence((seed, run, purpose)))


@compiled
def play(environment, world, model, state, policy, pulls, initial_pulls, first, last, regret,  # type: ignore[no-untyped-def]
         checkpoints, curve, world_rng, policy_rng, stop):  # fmt: skip
    """Play steps first … last of one run; the regret so far goes in, the regret since comes out."""
    mark = np.searchsorted(checkpoints, first)
    for t in range(first, last + 1):
        context, means, available = advance(environment, world, t, world_rng)
        arm = least_pulled(pulls, available) if initial_pulls > 0 else -1
        if arm < 0 or pulls[arm] >= initial_pulls:
            belief = believe(model, state, context, available, t, policy_rng)
            arm = available[choose(policy, belief, policy_rng)]
        update(model, state, context, arm, pay(environment, world, arm))
        pulls[arm] += 1
        regret += best_mean(means, available) - means[arm]
        if mark < checkpoints.size and checkpoints[mark] == t:
            curve[mark] = regret
            mark += 1
        if stop[0]:
            break
    return regret


@inlined
def least_pulled(pulls, available):  # type: ignore[no-untyped-def]
    """The first of the available arms that were played least."""
    arm = available[0]
    for a in available:
        if pulls[a] < pulls[arm]:
            arm = a
    return arm


@inlined
def best_mean(means, available):  # type: ignore[no-untyped-def]
    """The mean reward of the best available arm."""
    best = -np.inf
    for a in available:
        best = max(best, means[a])
    return best


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
    progress: bool | Callable[[int], None] = True,
) -> "Simulation":
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
        From `tsucb.models`, or any object with `start(arms)`,
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
    named = _named(policies)
    numbers = _run_numbers(runs)
    marks = _checkpoints(horizon, checkpoints)
    if seed != int(seed) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, but it is {seed}")
    if workers is not None and (workers != int(workers) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1, but it is {workers}")
    _check_match(environment, model, horizon)

    regret = np.full((len(named), len(numbers), marks.size), np.nan)
    stop = np.zeros(1, dtype=np.bool_)
    jobs = [(p, r) for r in range(len(numbers)) for p in range(len(named))]
    threads = workers or _cores()
    with _reporting(progress, len(jobs) * horizon) as report:
        fast = all(_is_compiled(environment, model, policy) for policy in named.values())
        if not fast:
            threads = 1  # interpreted code holds the GIL: more threads would only be in the way
        pool = ThreadPoolExecutor(threads)
        rules = list(named.values())

        def start(p: int, r: int) -> _Run:
            return _Run(environment, model, rules[p], seed, numbers[r], marks, regret[p, r], stop)

        def whole(p: int, r: int) -> int:
            return start(p, r).until(horizon)

        try:
            if fast and hasattr(model, "trainer"):
                ready = [start(p, r) for p, r in jobs]
                _play_together(ready, model, horizon, pool, threads, report)
            else:
                futures: list[Future[int]] = [pool.submit(whole, p, r) for p, r in jobs]
                for future in as_completed(futures):
                    report(future.result())
        except BaseException:
            stop[0] = True  # running kernels leave at their next step
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return Simulation(tuple(named), numbers, marks, regret)


class _Run:
    """One run of one policy, as far as it has been played."""

    def __init__(self, environment: Any, model: Any, policy: Any, seed: int, run: int,
                 checkpoints: Integers, curve: Floats, stop: Any) -> None:  # fmt: skip
        streams = stream(seed, run, WORLD), stream(seed, run, POLICY)
        world = begin(environment, streams[0])
        # The networks of all policies start alike in the same run.
        own = (stream(seed, run, MODEL),) if hasattr(model, "trainer") else ()
        self.state = model.start(environment.arms, *own)
        pulls = np.zeros(environment.arms, dtype=np.int64)
        self.loop = play if _is_compiled(environment, model, policy) else play.py_func  # type: ignore[attr-defined]
        self.given = (environment, world, model, self.state, policy, pulls, _initial_pulls(model))
        self.recorded = (checkpoints, curve, *streams, stop)
        self.regret, self.played = 0.0, 0

    def until(self, last: int) -> int:
        """Play on to step `last`; return the number of steps played."""
        first, self.played = self.played + 1, last
        self.regret = self.loop(*self.given, first, last, self.regret, *self.recorded)
        return last + 1 - first


def _play_together(
    runs: list[_Run], model: Any, horizon: int, pool: ThreadPoolExecutor, threads: int,
    report: Callable[[int], None],
) -> None:  # fmt: skip
    """Play all runs side by side, and train the models of all together every few steps."""
    train = model.trainer([run.state for run in runs])
    shares = [runs[thread::threads] for thread in range(threads)]

    def play_on(share: list[_Run], last: int) -> int:
        return sum(run.until(last) for run in share)

    for last in range(model.interval, horizon + model.interval, model.interval):
        if last > model.interval:
            train()
        for steps in pool.map(play_on, shares, [min(last, horizon)] * threads):
            report(steps)


def _is_compiled(environment: Any, model: Any, policy: Any) -> bool:
    """Whether all three have compiled implementations."""
    return (
        type(environment) in implementations(advance)
        and type(model) in implementations(believe)
        and type(policy) in implementations(choose)
    )


def _initial_pulls(model: Any) -> int:
    """How often every arm is pulled before the policy decides."""
    return int(getattr(model, "initial_pulls", 0))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _named(policies: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
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


def _run_numbers(runs: int | Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(range(runs)) if isinstance(runs, int | np.integer) else tuple(runs)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ValueError(f"runs must be a positive number or distinct run numbers, not {runs}")
    return numbers


def _checkpoints(horizon: int, checkpoints: int | Sequence[int]) -> Integers:
    if horizon != int(horizon) or horizon < 1:
        raise ValueError(f"horizon must be a whole number of at least 1, but it is {horizon}")
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
    pulls = _initial_pulls(model) * environment.arms
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
def _reporting(
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


@dataclass(frozen=True)
class Simulation:
    """The regret of every policy in every run.

    Parameters
    ----------
    policies
        Names of the P policies.
    numbers
        Numbers of the R runs.
    checkpoints
        The C steps at which the regret was recorded.
    regret
        Cumulative regret (P, R, C).

    >>> import numpy as np
    >>> regret = np.array([[[4.0], [6.0]], [[2.0], [3.0]]])
    >>> result = Simulation(("TS", "UCB"), (0, 1), np.array([100]), regret)
    >>> float(result.summary(baseline="TS").loc["UCB", "percent"])
    50.0
    """

    policies: tuple[str, ...]
    numbers: tuple[int, ...]
    checkpoints: Integers
    regret: Floats

    @property
    def runs(self) -> "pd.DataFrame":
        """A tidy table: policy, run, step, regret."""
        import pandas as pd

        index = pd.MultiIndex.from_product(
            (self.policies, self.numbers, self.checkpoints), names=("policy", "run", "step")
        )
        return pd.DataFrame({"regret": self.regret.ravel()}, index=index).reset_index()

    def final(self, policy: str) -> Floats:
        """A policy's regret at the end of every run (R,)."""
        if policy not in self.policies:
            raise ValueError(
                f"there is no policy {policy!r} here; there are {', '.join(self.policies)}"
            )
        final: Floats = self.regret[self.policies.index(policy), :, -1]
        return final

    def summary(self, baseline: str | None = None) -> "pd.DataFrame":
        """Regret at the horizon: mean, standard error, 95 % interval and median per policy.

        With a baseline also the regret as a percentage of the baseline's: the mean over runs of
        100 · regret / (baseline's regret in the same run), and its 95 % interval.
        """
        import pandas as pd

        rows = {}
        for policy in self.policies:
            final = self.final(policy)
            mean, error, low, high = mean_interval(final)
            rows[policy] = {
                "runs": final.size,
                "regret_mean": mean,
                "regret_se": error,
                "ci95_low": low,
                "ci95_high": high,
                "regret_median": float(np.median(final)),
            }
            if baseline is not None:
                percent, _, low, high = mean_interval(percent_of(final, self.final(baseline)))
                rows[policy] |= {"percent": percent, "percent_low": low, "percent_high": high}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Mean regret over time, with a band of 95 % for the mean."""
        from tsucb.figures import regret_curves

        return regret_curves(
            self.checkpoints, dict(zip(self.policies, self.regret, strict=True)), ax
        )
