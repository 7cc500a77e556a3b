"""Draw the pictures of the documentation: `python docs/figures/draw.py [NAME ...]`.

Each is written twice, for light and for dark pages. All numbers in them are computed here.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

import tsucb
from tsucb.pages.figures import style, theme
from tsucb.paper.figure1 import Figure1
from tsucb.paper.posteriors import Posteriors
from tsucb.paper.theorems import Theorems

FOLDER = Path(__file__).parent

# Five arms for the pictures that explain: colours of Okabe and Ito, told apart by colour-blind
# readers; the arms carry their letters too.
ARMS = "ABCDE"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")
MEAN = np.array([0.62, 0.50, 0.36, 0.05, 0.30])
RADIUS = np.array([0.10, 0.22, 0.34, 0.50, 0.16])


def race() -> Figure:
    """All error bars grow at one rate; the first to touch f̃ is played."""
    target = 0.82
    ratios = (target - MEAN) / RADIUS
    alpha, winner = ratios.min(), int(ratios.argmin())
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for a, colour in enumerate(COLOURS):
        axes.bar(a, alpha * RADIUS[a], 0.13, MEAN[a], color=colour, alpha=0.45)
        axes.plot(a, MEAN[a], "o", color=colour, ms=9)
        axes.annotate(
            f"Ψ = {ratios[a]:.2f}",
            (a, MEAN[a] - 0.05),
            ha="center",
            va="top",
            fontweight="bold" if a == winner else "normal",
        )
    axes.axhline(target, ls="--", lw=1.2, color=style("TS")["color"])
    axes.annotate("f̃: the best mean in a posterior draw", (-0.4, target + 0.02), va="bottom")
    axes.annotate(
        "first to touch: played",
        (winner, target + 0.01),
        (winner + 0.35, target + 0.1),
        arrowprops={"arrowstyle": "->", "color": style("TS")["color"]},
        va="center",
        fontweight="bold",
    )
    axes.set_xticks(range(len(ARMS)), [f"arm {x}" for x in ARMS])
    axes.set(ylabel="mean reward", xlim=(-0.5, 4.5), ylim=(-0.12, 1.0))
    axes.grid(False)
    return figure


@functools.cache
def regret_runs() -> tsucb.Simulation:
    """Every policy on one instance of the paper's synthetic problem."""
    bandit = tsucb.ContextualLinearBandit(arms=20, features=10, noise=1.0)
    policies = [
        tsucb.OFUL(),
        tsucb.Greedy(),
        tsucb.Thompson(),
        tsucb.IDS(1000),
        tsucb.TSUCB(1),
        tsucb.TSUCB(100),
    ]
    return tsucb.simulate(bandit, bandit.model(), policies, horizon=5_000, runs=40)


def regret() -> Figure:
    """Cumulative regret of every policy."""
    result = regret_runs()
    figure = Figure(figsize=(5.4, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, runs in zip(result.policies, result.regret, strict=True):
        look = style(name)
        if name == "TS-UCB(1)":  # wide and pale, to be seen beneath the dashes of TS-UCB(100)
            look |= {"color": "#56B4E9", "lw": 3}
        mean = runs.mean(axis=0)
        half = 1.96 * runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.plot(result.checkpoints, mean, **look)
        axes.fill_between(
            result.checkpoints, mean - half, mean + half, color=look["color"], alpha=0.15, lw=0
        )
    axes.set(xlabel="step", ylabel="cumulative regret", xlim=(0, 5_000), ylim=(0, None))
    axes.legend(loc="upper left")
    return figure


def envelope() -> Figure:
    """Ψ of every arm is a line in f̃; the arm on the lower envelope is played."""
    f = np.linspace(0.3, 1.6, 521)
    ratios = (f[:, None] - MEAN) / RADIUS
    lowest = ratios.argmin(axis=1)
    density = np.gradient([best_mean_below(x) for x in f], f)

    figure = Figure(figsize=(5.4, 4.7), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for a, colour in enumerate(COLOURS):
        top.plot(f, ratios[:, a], color=colour, lw=1)
        top.plot(f, np.where(lowest == a, ratios[:, a], np.nan), color=colour, lw=4)
        end = min(f[-1], MEAN[a] + 5 * RADIUS[a])
        top.annotate(
            ARMS[a], (end, (end - MEAN[a]) / RADIUS[a]), (-8 if ARMS[a] == "E" else 4, 3),
            textcoords="offset points", color=colour, fontweight="bold", fontsize=11,
        )  # fmt: skip
        bottom.fill_between(f, density, where=lowest == a, color=colour, alpha=0.6, lw=0)
        low, high = where_lowest(a)
        share = max(0.0, best_mean_below(high) - best_mean_below(low))
        bottom.annotate(
            f"{ARMS[a]} is played with probability {share:.0%}", (0.99, 0.9 - 0.17 * a),
            xycoords="axes fraction", ha="right", color=colour, fontweight="bold", fontsize=8,
        )  # fmt: skip
    top.set(ylabel="Ψ(a) = (f̃ − estimate) / radius", ylim=(-2, 5), xlim=(f[0], f[-1] + 0.04))
    bottom.set(xlabel="f̃", ylabel="density of f̃", yticks=[], ylim=(0, None))
    return figure


def where_lowest(a: int) -> tuple[float, float]:
    """The interval of f̃ on which arm a's line is below all others; empty if low > high."""
    low, high = -np.inf, np.inf
    for b in range(MEAN.size):
        if b != a:
            crossing = (MEAN[a] * RADIUS[b] - MEAN[b] * RADIUS[a]) / (RADIUS[b] - RADIUS[a])
            if RADIUS[b] > RADIUS[a]:  # the flatter line is below to the right
                high = min(high, crossing)
            else:
                low = max(low, crossing)
    return low, high


def best_mean_below(x: float) -> float:
    """The distribution of f̃ for one draw: the largest of independent normals."""
    return float(np.prod(stats.norm.cdf((x - MEAN) / RADIUS)))


@functools.cache
def alpha_run(samples: int, horizon: int) -> np.ndarray:
    """The factor α_t at every step of one run of TS-UCB."""
    bandit = tsucb.ContextualLinearBandit(arms=10, features=10, noise=0.5)
    model = bandit.model()
    rng, draws = np.random.default_rng(1), np.random.default_rng(2)
    world, state = bandit.begin(rng), model.start(bandit.arms)
    factors = np.empty(horizon)
    for t in range(horizon):
        context, _, _ = bandit.advance(world, t + 1, rng)
        belief = model.belief(state, context, rng=draws)
        means = belief.mean + belief.std * draws.standard_normal((samples, bandit.arms))
        ratios = (means.max(axis=1).mean() - belief.estimate) / belief.radius
        factors[t] = ratios.min()
        arm = int(ratios.argmin())
        model.update(state, context, arm, bandit.reward(world, arm))
    return factors


def alpha() -> Figure:
    """The factor that TS-UCB amounts to, over one run, for one sample and for a hundred."""
    figure = Figure(figsize=(5.4, 3.3), layout="constrained")
    axes = figure.subplots()
    horizon, window = 3_000, 101
    steps, half = np.arange(1, horizon + 1), window // 2
    for samples, colour in ((1, "#E69F00"), (100, "#0072B2")):
        factors = alpha_run(samples, horizon)
        smooth = np.convolve(factors, np.ones(window) / window, "valid")
        axes.plot(steps[::5], factors[::5], ".", ms=4, color=colour, alpha=0.5, mew=0)
        axes.plot(
            steps[half:-half], smooth, color=colour, lw=2,
            label=f"TS-UCB({samples}), mean of {window} steps",
        )  # fmt: skip
    axes.axhline(0, lw=0.8, color=style("TS")["color"])
    axes.set(xlabel="step t", ylabel="α_t", xlim=(0, horizon), ylim=(-2, 4))
    axes.legend(loc="upper right")
    return figure


def sampling() -> Figure:
    """Vectors drawn from the posterior, seen along the context, are the numbers drawn directly."""
    rng = np.random.default_rng(4)
    means = np.array([[0.9, 0.4], [0.2, 1.0]])
    roots = np.array([[[0.5, 0.0], [-0.25, 0.3]], [[0.25, 0.0], [0.2, 0.45]]])
    context, places = np.array([0.8, 0.6]), [(1.8, 0.2), (0.75, 2.1)]
    figure = Figure(figsize=(6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k in range(2):
        beta = means[k] + rng.standard_normal((4_000, 2)) @ roots[k].T
        left.plot(*beta[:500].T, ".", ms=3, color=COLOURS[k], alpha=0.5)
        left.annotate(f"arm {ARMS[k]}", places[k], color=COLOURS[k], weight="bold")
        right.hist(beta @ context, bins=50, density=True, color=COLOURS[k], alpha=0.35)
        law = stats.norm(context @ means[k], np.linalg.norm(roots[k].T @ context))
        reward = np.linspace(law.ppf(0.0005), law.ppf(0.9995), 200)
        right.plot(reward, law.pdf(reward), color=COLOURS[k], lw=2)
    left.annotate(
        "", 1.2 * context, (0, 0), arrowprops={"arrowstyle": "-|>", "color": style("TS")["color"]}
    )
    left.annotate("context x", 1.2 * context, (4, -9), textcoords="offset points")
    left.set(xlabel="β₁", ylabel="β₂", title="draw K vectors …", aspect="equal")
    right.set(xlabel="mean reward ⟨β, x⟩", yticks=[], title="… or K numbers: the same law")
    right.annotate("bars: vectors drawn, then ⟨β, x⟩", (0.03, 0.93), xycoords="axes fraction")
    right.annotate("lines: N(⟨μ, x⟩, xᵀΣx)", (0.03, 0.86), xycoords="axes fraction")
    right.set_ylim(0, right.get_ylim()[1] * 1.2)
    return figure


def prior() -> Figure:
    """What the model that learns its prior believes about scales, as rewards come."""
    rng = np.random.default_rng(5)
    steps, arms, features = 3_000, 5, 4
    slopes, noise, level = 30.0 * rng.normal(size=(arms, features)), 40.0, 500.0
    contexts = rng.normal(size=(steps, features))
    model = tsucb.AdaptiveLinear(features)
    state = model.start(arms)
    rows = []
    for t in range(steps):
        arm = t % arms
        reward = level + contexts[t] @ slopes[arm] + noise * rng.normal()
        model.update(state, contexts[t], arm, reward)
        slopes_variance = state.spread[0] * (state.slopes[0] + state.common[0])
        known = state.variance.mean(), slopes_variance
        rows.append(np.sqrt(known if state.known[0] else (np.nan, np.nan)))
    found = np.array(rows)
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    lines = (
        ("noise", noise, COLOURS[0], "-"),
        ("coefficients", slopes.std(), COLOURS[4], "--"),
    )
    for column, (name, truth, colour, line) in zip(found.T, lines, strict=True):
        axes.plot(np.arange(1, steps + 1), column, line, color=colour, lw=2, label=name)
        axes.axhline(truth, color=colour, lw=0.8, ls=":")
    axes.set(xscale="log", xlabel="rewards so far", ylabel="standard deviation, learned", ylim=0)
    axes.annotate("dotted: the truth", (0.98, 0.04), xycoords="axes fraction", ha="right")
    axes.legend(loc="upper right")
    return figure


def figure1(narrow: bool = False) -> Figure:
    """The paper's Figure 1 from the results of the full run."""
    summary = pd.read_csv(FOLDER.parent / "results" / "figure1.csv")
    policies = ("TS", "TS-UCB(1)", "TS-UCB(100)", "IDS(1000)", "Greedy", "UCB")
    return Figure1.at("full", policies=policies).draw(summary, narrow)


def theorems(narrow: bool = False) -> Figure:
    """Bayes regret below the bounds, from the results of the full run."""
    summary = pd.read_csv(FOLDER.parent / "results" / "theorems.csv")
    theorems = summary[summary.experiment.str.startswith("theorem")]
    return Theorems.at("full").draw(theorems, narrow)


def posteriors(narrow: bool = False) -> Figure:
    """TS-UCB beside TS under four posteriors, from the results of the full run."""
    summary = pd.read_csv(FOLDER.parent / "results" / "posteriors.csv")
    return Posteriors.at("full").draw(summary, narrow)


PICTURES: dict[str, Callable[[], Figure]] = {
    draw.__name__: draw
    for draw in (race, regret, envelope, alpha, sampling, prior, figure1, theorems, posteriors)
} | {  # for phones
    "figure1-narrow": functools.partial(figure1, narrow=True),
    "theorems-narrow": functools.partial(theorems, narrow=True),
    "posteriors-narrow": functools.partial(posteriors, narrow=True),
}


def main(names: list[str]) -> None:
    """Draw the pictures named, or all."""
    for name in names or PICTURES:
        for ground in ("light", "dark"):
            with theme(ground):
                options: Any = {"metadata": {"Date": None}, "transparent": True}
                PICTURES[name]().savefig(FOLDER / f"{name}-{ground}.svg", **options)


if __name__ == "__main__":
    main(sys.argv[1:])
