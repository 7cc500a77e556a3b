"""`tsucb simulate`: play policies against any environment, with any model."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import tsucb
from tsucb.cli.options import (
    AgentsOption,
    DataOption,
    MissingOption,
    SeedOption,
    grouped,
    option,
    split_list,
)
from tsucb.display import text_table
from tsucb.files import write_whole
from tsucb.numeric.statistics import NORMAL
from tsucb.pages.figures import new_figure, regret_curves, theme
from tsucb.paper import datasets
from tsucb.policies.names import named_policy, usual_ucb


class ModelName(StrEnum):
    """Names of models; `auto` is the model with the environment's prior, or else nig-linear."""

    auto = "auto"
    curves = "adaptive-curves"
    adaptive = "adaptive-linear"
    bernoulli = "bernoulli"
    gaussian = "gaussian"
    linear = "linear"
    contextual = "contextual-linear"
    nig = "nig-linear"
    neural = "neural-linear"


USUAL = "TS,TS-UCB(1),TS-UCB(100),Greedy,UCB"


@dataclass
class Size:
    """The size and the parameters of an environment."""

    arms: int = option(10, "K, of a synthetic environment.", min=1, max=1_000_000)
    features: int = option(10, "d, of a linear environment.", min=1, max=1_000_000)
    noise: float = option(1.0, "σ of the rewards.")
    delta: float = option(0.5, "Radius of the wheel.")
    data_dir: DataOption = None

    def environment(self, name: str) -> Any:
        """Return a synthetic environment or a dataset by its name.

        Raise ValueError for an unknown name, or if the environment does not fit into memory.
        """
        if name in ("linear", "contextual-linear"):
            matrices = self.arms if name == "contextual-linear" else 1
            numbers = self.features * (2 * matrices * self.features + self.arms)
            check_memory(f"{self.arms:,} arms with {self.features:,} features", 8.0 * numbers)
        arms, features, noise = self.arms, self.features, self.noise
        synthetic: dict[str, Callable[[], Any]] = {
            "bernoulli": lambda: tsucb.KArmedBandit(arms, tsucb.BernoulliArms()),
            "gaussian": lambda: tsucb.KArmedBandit(arms, tsucb.GaussianArms(noise)),
            "linear": lambda: tsucb.LinearBandit(arms, features, noise),
            "contextual-linear": lambda: tsucb.ContextualLinearBandit(arms, features, noise),
            "wheel": lambda: tsucb.WheelBandit(self.delta),
        }
        if name in synthetic:
            return synthetic[name]()
        if name in datasets.DATASETS:
            return datasets.load(name, self.data_dir)
        known = ", ".join([*synthetic, *datasets.DATASETS])
        raise ValueError(f"unknown environment {name!r}; choose one of {known}")


@dataclass
class Runs:
    """The number and the length of runs."""

    horizon: int = option(1000, "Steps of a run.", min=1, max=1_000_000_000)
    runs: int = option(20, "Runs of every policy.", min=1, max=1_000_000)
    seed: SeedOption = 0
    workers: int | None = option(None, "Threads; default: one per core.", min=1, max=1_000)


@dataclass
class LikeLog:
    """A log to fit an environment to, and the agents that play there."""

    like: Path | None = option(
        None,
        "A decision log, or a .csv or .parquet file with the columns arm and reward: simulate "
        "what is fitted to it.",
    )
    agent: AgentsOption = None
    missing: MissingOption = None


@grouped
def simulate(
    like: LikeLog,
    size: Size,
    runs: Runs,
    environment: Annotated[
        str | None,
        typer.Argument(
            help="bernoulli, gaussian, linear, contextual-linear (the default), wheel, or a "
            "dataset: adult, census, covertype, financial, jester, mushroom, statlog.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        ModelName, typer.Option(help="auto: the one that fits the environment.")
    ] = ModelName.auto,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            "--policy",
            help="Comma-separated; also IDS(1000), UCB1, Bayes-UCB, Random; TS+5% plays a random "
            f"arm in 5 % of the steps. Default: {USUAL}.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Figure of the regret over time: .png, .svg or .pdf.")
    ] = Path("regret.png"),
) -> None:
    """Play policies against a simulated environment."""
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out {out} must end in .png, .svg or .pdf")
    if like.like is None and (like.agent or like.missing is not None):
        raise ValueError("--agent and --missing are for --like; name the log")
    if like.like is not None and (environment is not None or model is not ModelName.auto):
        raise ValueError("--like takes the place of an environment and its model; leave them off")
    if like.like is not None:
        steps, curves = play_like(like.like, like, split_list(policies) or (), runs)
    else:
        name = environment or "contextual-linear"
        bandit = size.environment(name)
        learner = make_model(model, bandit, size.noise, runs.horizon)
        steps, curves = play_bandit(
            name, bandit, learner, split_list(policies or USUAL) or (), runs
        )
    save_figure(steps, curves, out)
    typer.echo(f"Figure: {out}")


def play_bandit(
    name: str, bandit: Any, model: Any, rules: tuple[str, ...], play: Runs
) -> tuple[Any, dict[str, Any]]:
    """Play policies against a bandit and print the table; return checkpoints and regret curves."""
    special = {
        "UCB": usual_ucb(model, play.horizon),
        "UCB1": tsucb.UCB1(),
        "Bayes-UCB": tsucb.BayesUCB(),
    }
    result = tsucb.simulate(
        bandit, model, [named_policy(rule, **special) for rule in rules], horizon=play.horizon,
        runs=play.runs, seed=play.seed, workers=play.workers,
    )  # fmt: skip
    summary = result.summary(baseline="TS" if "TS" in result.policies else None)
    typer.echo(
        f"{name}, {bandit.arms} arms, {type(model).__name__}: regret after "
        f"{play.horizon:,} steps, {play.runs} runs, 95 % intervals"
    )
    rows = []
    for policy, line in summary.iterrows():
        percent = (line.get(f"percent{end}", math.nan) for end in ("", "_low", "_high"))
        rows.append([
            str(policy),
            f"{line.regret_mean:,.4g} ({line.ci95_low:,.4g} to {line.ci95_high:,.4g})",
            f"{line.regret_median:,.4g}",
            "{:.1f} ({:.1f} to {:.1f})".format(*percent) if "percent" in summary else "–",
        ])  # fmt: skip
    typer.echo(text_table(["policy", "mean regret", "median", "% of TS"], rows))
    return result.checkpoints, dict(zip(result.policies, result.regret, strict=True))


def play_like(
    log: Path, given: LikeLog, rules: tuple[str, ...], play: Runs
) -> tuple[Any, dict[str, Any]]:
    """Play agents against a bandit fitted to a log; return checkpoints and regret curves."""
    from tsucb.cli.evaluate import read_agents
    from tsucb.evaluation import simulate_like
    from tsucb.evaluation.like import RANDOM, WARNING
    from tsucb.logs import read_decisions

    agents = read_agents(given.agent, rules)
    decisions = read_decisions(log, uniform=True).rewarded(given.missing)
    found = simulate_like(
        decisions, agents, horizon=play.horizon, runs=play.runs, seed=play.seed,
        workers=play.workers,
    )  # fmt: skip
    typer.echo(
        f"like {log}: {len(decisions):,} decisions with rewards, {len(decisions.arms)} arms;"
        f" regret after {play.horizon:,} decisions, {play.runs} runs"
    )
    rows = []
    for _, line in found.table().iterrows():
        never = "not yet" if line["configuration"] != RANDOM else "–"
        settled = float(line["settled"])
        rows.append([
            str(line["configuration"]),
            f"{line['regret']:,.4g} ± {NORMAL * line['error']:,.2g}",
            f"{line['percent_of_random']:.1f}",
            f"{settled:,.0f}" if settled == settled else never,
        ])  # fmt: skip
    typer.echo(text_table(["configuration", "mean regret", "% of random", "settled after"], rows))
    typer.echo(
        "Settled: the decision from which on it loses less than a tenth of what random choice "
        f"loses, which is the traffic that it needs.\n{WARNING}"
    )
    first = next(iter(found.simulations.values()))
    return first.checkpoints, {name: each.regret[0] for name, each in found.simulations.items()}


def check_memory(what: str, needed: float) -> None:
    """Raise ValueError if this machine cannot hold the bytes needed."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows does not say
        return
    if needed > memory:
        raise ValueError(
            f"{what} need about {needed / 2**30:,.0f} GiB of memory, and this machine has "
            f"{memory / 2**30:,.0f}; give smaller numbers"
        )


def make_model(name: ModelName, environment: Any, noise: float, horizon: int) -> Any:
    """Return the model with this name for the dimensions of the environment."""
    if name is ModelName.auto and hasattr(environment, "prior"):
        return environment.prior
    if name is ModelName.auto and hasattr(environment, "model"):
        return environment.model()
    d = getattr(environment, "features", 0) or (environment.context_shape or (0,))[-1]
    makers: dict[ModelName, Callable[[], Any]] = {
        ModelName.auto: lambda: tsucb.NIGLinear(d),
        ModelName.curves: lambda: tsucb.AdaptiveCurves(d),
        ModelName.adaptive: lambda: tsucb.AdaptiveLinear(d),
        ModelName.bernoulli: tsucb.BernoulliArms,
        ModelName.gaussian: lambda: tsucb.GaussianArms(noise),
        ModelName.linear: lambda: tsucb.Linear(d, noise, prior_covariance=1 / max(d, 1)),
        ModelName.contextual: lambda: tsucb.ContextualLinear(
            d, noise, prior_covariance=1 / max(d, 1)
        ),
        ModelName.nig: lambda: tsucb.NIGLinear(d),
        ModelName.neural: lambda: tsucb.NeuralLinear(d, training=tsucb.Training(memory=horizon)),
    }
    return makers[name]()


def save_figure(checkpoints: Any, curves: dict[str, Any], out: Path) -> None:
    """Write the regret curves of policies to a file."""
    sink = io.BytesIO()
    with theme("light"):
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        regret_curves(checkpoints, curves, axes)
        axes.set_ylabel("cumulative regret, mean with 95 % band")
        figure.savefig(sink, format=out.suffix[1:], dpi=160)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, sink.getvalue())
