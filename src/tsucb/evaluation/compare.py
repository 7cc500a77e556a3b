"""Compare whole configurations of agents on a log: would another agent have done better?

By *replay*, if the log tried every arm often enough: the configuration plays through the log and
learns from the decisions at which it picks the logged arm. Otherwise *doubly robust*: at every
decision the configuration is asked what it would choose. What it would have learned from its own
choices cannot be read off another's log. `ABOUT` says what the intervals of each are about.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.checks import shown, whole_number
from tsucb.evaluation.candidates import Candidate, candidate, predictions, reads_arms
from tsucb.evaluation.settings import Settings, read_settings
from tsucb.extras import require
from tsucb.files import write_whole
from tsucb.logs.decisions import Decisions, read_decisions
from tsucb.logs.estimators import UNKNOWN, Estimate, OffPolicy, interval, misfit
from tsucb.logs.replay import LIVES, Replay, life_width, replay, untried
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval
from tsucb.pages.charts import Chart, Line, Point, lines, plain, thinned
from tsucb.pages.render import render

if TYPE_CHECKING:
    import pandas as pd

REPLAY, ROBUST = "replay", "doubly robust"
LOGGED = "as logged"
LEAST_REPLAYED = 500  # decisions that replay is expected to keep, from which on "auto" chooses it
ABOUT = {
    REPLAY: "Intervals are about the mean reward of a life in which a configuration makes as many "
    "decisions as were kept and learns from these alone, over other visitors and other luck; from "
    f"{LIVES} replays of the log and of resampled logs.",
    ROBUST: "Intervals are about what a configuration would choose at the decisions of this log, "
    "knowing all rewards that had come by then, whichever arm was played; not about a life of its "
    "own.",
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """What configurations would have earned on a log.

    Parameters
    ----------
    decisions : how many the log has
    method : "replay" or "doubly robust"
    values : the mean reward of a decision, "as logged" first, then of each configuration
    differences : of each configuration to "as logged", and of each later one to each earlier one
    terms : (N,) for each, the contribution of every decision: their means are the values
    time : (N,) of the decisions
    kept : with replay, how many decisions each configuration's value rests on
    """

    decisions: int
    method: str
    values: dict[str, Estimate]
    differences: dict[tuple[str, str], Estimate]
    terms: dict[str, Floats]
    time: Floats
    kept: dict[str, int]

    @property
    def headline(self) -> str:
        """The number of decisions, the method, and how many decisions replay kept."""
        kept = ", ".join(f"{name} {size:,}" for name, size in self.kept.items() if size)
        return f"{self.decisions:,} decisions, by {self.method}" + (
            f" (kept: {kept})" if kept else ""
        )

    @property
    def about(self) -> str:
        """A sentence on what the intervals are about."""
        return ABOUT[self.method]

    def table(self) -> "pd.DataFrame":
        """Return one row per configuration: its value, and the difference to "as logged"."""
        require("tables", "pandas")
        import pandas as pd

        rows = []
        for name, found in self.values.items():
            lift = self.differences.get((name, LOGGED), UNKNOWN)
            rows.append(
                {"configuration": name, "reward": found.value, "low": found.low, "high": found.high,
                 "effective_size": found.effective_size, "uncovered": found.uncovered,
                 "largest_weight": found.largest_weight, "extra": lift.value,
                 "extra_low": lift.low, "extra_high": lift.high, "reason": found.reason}
            )  # fmt: skip
        return pd.DataFrame(rows)

    def pairs(self) -> "pd.DataFrame":
        """Return one row per pair: how much more the first earns than the second."""
        require("tables", "pandas")
        import pandas as pd

        rows = [
            {"first": a, "second": b, "extra": d.value, "low": d.low, "high": d.high,
             "verdict": verdict(d), "reason": d.reason}
            for (a, b), d in self.differences.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def pair_rows(self) -> list[tuple[str, str, str]]:
        """Return rows of text: the pair, how much more the first earns, and the verdict."""
        return [
            (f"{first} against {second}", interval(each, sign=True), verdict(each))
            for (first, second), each in self.differences.items()
        ]

    def value_rows(self) -> list[tuple[str, str, str, str]]:
        """Return rows of text: configuration, reward, effective size, and the uncovered share."""
        return [
            (name, interval(each), f"{each.effective_size:,.0f}", f"{100 * each.uncovered:.1f} %")
            for name, each in self.values.items()
        ]

    def reasons(self) -> list[str]:
        """Return a sentence for each value, and each difference, that has no interval."""
        reasons = [f"{name}: {each.reason}." for name, each in self.values.items() if each.reason]
        for (first, second), each in self.differences.items():
            if each.reason and self.values[first].trusted and self.values[second].trusted:
                reasons.append(f"{first} against {second}: {each.reason}.")
        return reasons

    def chart(self) -> Chart | None:
        """Draw the sum so far of what each configuration earns more than was logged."""
        logged = self.terms[LOGGED]
        series = []
        for name, terms in self.terms.items():
            if name == LOGGED or not self.differences[name, LOGGED].trusted:
                continue
            total = np.cumsum(terms - logged)
            points = [Point(float(i + 1), float(total[i])) for i in thinned(logged.size)]
            series.append(Line(name, points))
        return lines(
            series, "extra reward over the log", x_label="decision of the log",
            y_label="extra reward so far", text=plain, zero=True,
        )  # fmt: skip

    def report(self, path: str | os.PathLike[str], title: str = "Agents compared on a log") -> None:
        """Write an HTML page with the tables and a figure over time."""
        write_whole(path, render("comparison.html", title=title, found=self))


def verdict(found: Estimate) -> str:
    """Return the verdict on a difference: better, worse, cannot tell, or that the log cannot say.

    >>> verdict(Estimate(0.2, 0.05, 0.1, 0.3, 100, 200)), verdict(Estimate(0.1, 1, -1, 2, 9, 90))
    ('better', 'cannot tell')
    """
    if not found.trusted and not found.bounded:
        return "the log cannot say"
    return "better" if found.low > 0 else "worse" if found.high < 0 else "cannot tell"


def compare(
    log: Any,
    agents: Mapping[str, Settings | str | os.PathLike[str]],
    *,
    missing: float | str | None = None,
    method: str = "auto",
    rewards_between: tuple[float, float] | None = None,
    draws: int = 10,
    seed: int = 0,
    **columns: Any,
) -> Comparison:
    """Compare whole configurations of agents on a log.

    Parameters
    ----------
    log
        As for `tsucb.logs.read_decisions`, or the `Decisions` that it returned.
    agents
        Names and settings: mappings with some of `Agent`'s arguments (policy, model, features,
        forgetting, exploration, categories, transformer), or paths of TOML files. An empty mapping
        is the agent's defaults.
    missing
        The reward of decisions without one: a number, "drop" to leave them out, or "recent" to
        leave out all decisions that are too young to have one (see `Decisions.rewarded`).
    method
        "replay", "doubly robust", or "auto": replay if it can be expected to keep 500 decisions.
    rewards_between
        The least and the largest possible reward. With it doubly robust estimates have intervals
        also where few decisions carry them. By default 0 and 1 if all rewards are 0 or 1.
    draws
        How often a configuration is asked at every decision what it would choose, as many policies
        choose at random.
    seed
        For these draws, and for replay.
    columns
        For tables of your own: arm, reward, contexts, available, propensity, uniform as in
        `tsucb.logs.read_decisions`.

    >>> import numpy as np, pandas as pd, tsucb
    >>> rng = np.random.default_rng(0)
    >>> arm, age = rng.choice(["tea", "milk"], size=4_000), rng.integers(5, 60, size=4_000)
    >>> bought = rng.random(4_000) < np.where((arm == "tea") == (age > 30), 0.5, 0.2)
    >>> log = pd.DataFrame({"arm": arm, "reward": bought.astype(float), "age": age})
    >>> agents = {"default": {}, "no context": {"model": "BernoulliArms"}}
    >>> found = compare(log, agents, uniform=True)
    >>> found.method, found.differences["default", "as logged"].low > 0
    ('replay', True)
    """
    whole_number("draws", draws)
    settings = agent_settings(agents)
    if not isinstance(log, Decisions):
        log = read_decisions(log, **columns)
    elif columns:
        raise TypeError(f"decisions have no columns to name, such as {next(iter(columns))}")
    decisions = log.rewarded(missing)
    if len(decisions) < 2:
        raise ValueError("a log of one decision says nothing; give a longer one")
    if decisions.probabilities is not None:
        wrong = misfit(decisions.arm, decisions.probabilities, decisions.arms)
        if wrong:
            raise ValueError(wrong)
    if method_for(decisions, settings, method) == REPLAY:
        return by_replay(decisions, settings, seed)
    return by_estimates(decisions, settings, draws, seed, rewards_between)


def agent_settings(
    agents: Mapping[str, Settings | str | os.PathLike[str]],
) -> dict[str, dict[str, Any]]:
    """Return the settings of every agent, read from its file if it is a path."""
    if not isinstance(agents, Mapping) or not agents:
        raise ValueError("give the agents to compare: a mapping of names to settings")
    if LOGGED in agents:
        raise ValueError(f"{LOGGED!r} is the name of what the log holds; give another")
    return {
        str(name): dict(each) if isinstance(each, Mapping) else read_settings(each)
        for name, each in agents.items()
    }


def method_for(decisions: Decisions, settings: Mapping[str, Settings], method: str) -> str:
    """Return the method asked for; for "auto", replay if the log suits it."""
    if method not in ("auto", REPLAY, ROBUST):
        raise ValueError(f"method is auto, {REPLAY!r} or {ROBUST!r}, not {shown(method)}")
    if method == REPLAY and any(map(reads_arms, settings.values())):
        raise ValueError("a replay does not read features of arms; compare by 'doubly robust'")
    if method != "auto":
        return method
    replayed = len(decisions) * float(decisions.propensity.min())
    whole = untried(decisions.propensity, decisions.offered.sum(axis=1)) == 0.0
    has_features = decisions.arm_features is not None
    return REPLAY if whole and replayed >= LEAST_REPLAYED and not has_features else ROBUST


def by_estimates(
    decisions: Decisions,
    settings: Mapping[str, Settings],
    draws: int,
    seed: int,
    between: tuple[float, float] | None,
) -> Comparison:
    """Compare by doubly robust estimates."""
    arm, reward, played = decisions.arm, decisions.reward, decisions.propensity
    propensity = played if decisions.probabilities is None else decisions.probabilities
    log = OffPolicy(arm, reward, propensity, rewards_between=between)
    guess = predictions(decisions)
    rows = np.arange(len(arm))
    values, terms = {LOGGED: logged_estimate(reward)}, {LOGGED: reward}
    targets: dict[str, Floats | None] = {LOGGED: None}
    differences: dict[tuple[str, str], Estimate] = {}
    for name, each in settings.items():
        target = candidate(each, decisions, seed).choices(draws)
        values[name] = log.doubly_robust(target, guess)
        weight = target[rows, arm] / played
        terms[name] = (target * guess).sum(axis=1) + weight * (reward - guess[rows, arm])
        for other, before in targets.items():
            differences[name, other] = log.difference(target, guess, before)
        targets[name] = target
    return Comparison(
        len(arm), ROBUST, values, differences, terms, decisions.time, dict.fromkeys(settings, 0)
    )


def by_replay(decisions: Decisions, settings: Mapping[str, Settings], seed: int) -> Comparison:
    """Compare by replay over several lives; differences are paired by the log of each life."""
    n, reward = len(decisions), decisions.reward
    values, terms = {LOGGED: logged_estimate(reward)}, {LOGGED: reward}
    kept: dict[str, int] = {}
    differences: dict[tuple[str, str], Estimate] = {}
    rates = dict[str, Floats]()
    for name, each in settings.items():
        played = Candidate(each, decisions, seed)
        found = replay(played.events, played.model, played.policy, seed=seed)
        size = float(np.mean([life.size for life in found.lives]))
        kept[name] = round(size)
        error = float(found.rates.std(ddof=1))
        values[name] = Estimate(found.rate, error, found.low, found.high, size, n, 0.0, n / size)
        for other, others in {LOGGED: found.logged_rates, **rates}.items():
            extra, apart = found.rate - values[other].value, found.rates - others
            width, error = life_width(apart), float(apart.std(ddof=1))
            differences[name, other] = Estimate(extra, error, extra - width, extra + width, size, n)
        rates[name], terms[name] = found.rates, contributions(found, reward)
    return Comparison(n, REPLAY, values, differences, terms, decisions.time, kept)


def contributions(found: Replay, reward: Floats) -> Floats:
    """Return terms (N,), one per decision, whose mean is to first order the mean over lives."""
    terms: Floats = np.full(reward.size, found.rates.mean())
    for rate, kept in zip(found.rates, found.lives, strict=True):
        np.add.at(terms, kept, (reward[kept] - rate) * reward.size / kept.size / found.rates.size)
    return terms


def logged_estimate(reward: Floats) -> Estimate:
    """Return the estimate of the mean reward of the log itself."""
    value, error, low, high = mean_interval(reward)
    return Estimate(value, error, low, high, float(reward.size), reward.size)
