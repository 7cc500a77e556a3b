"""`tsucb simulate`: any environment × model × policies, for a quick question."""

from __future__ import annotations

import io
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import tsucb
from tsucb.cli.limits import bounded, check_memory
from tsucb.cli.options import SeedOption, listed
from tsucb.files import write_whole
from tsucb.numeric.statistics import NORMAL
from tsucb.pages.drawing import new_figure, theme
from tsucb.pages.figures import regret_curves
from tsucb.paper import datasets
from tsucb.policies.names import named_policy, usual_ucb


class ModelName(StrEnum):
    """The models; `auto` is the one that knows the environment's prior, or nig-linear."""

    auto = "auto"
    adaptive = "adaptive-linear"
    bernoulli = "bernoulli"
    gaussian = "gaussian"
    linear = "linear"
    contextual = "contextual-linear"
    nig = "nig-linear"
    neural = "neural-linear"


USUAL = "TS,TS-UCB(1),TS-UCB(100),Greedy,UCB"
SYNTHETIC = ("bernoulli", "gaussian", "linear", "contextual-linear", "wheel")


def simulate(
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
    like: Annotated[
        Path | None,
        typer.Option(
            help="A decision log, or a .csv or .parquet file with the columns arm and reward: "
            "simulate what is fitted to it."
        ),
    ] = None,
    agent: Annotated[
        list[Path] | None,
        typer.Option(help="With --like: a TOML file with the settings of an agent; may repeat."),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="With --like: what decisions without a reward earned; or drop them."),
    ] = None,
    arms: Annotated[int, typer.Option(help="K, of a synthetic environment.")] = 10,
    features: Annotated[int, typer.Option(help="d, of a linear environment.")] = 10,
    noise: Annotated[float, typer.Option(help="σ of the rewards.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Radius of the wheel.")] = 0.5,
    data_dir: Annotated[Path | None, typer.Option(help="Where the datasets lie.")] = None,
    horizon: Annotated[int, typer.Option(help="Steps of a run.")] = 1000,
    runs: Annotated[int, typer.Option(help="Runs of every policy.")] = 20,
    seed: SeedOption = 0,
    workers: Annotated[int | None, typer.Option(help="Threads; default: one per core.")] = None,
    out: Annotated[
        Path, typer.Option(help="Figure of the regret over time: .png, .svg or .pdf.")
    ] = Path("regret.png"),
) -> None:
    """Play policies against an environment: print a summary, save a figure."""
    from rich.console import Console
    from rich.table import Table

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out {out} must end in .png, .svg or .pdf")
    if like is None and (agent or missing is not None):
        raise ValueError("--agent and --missing are for --like; name the log")
    if like is not None and (environment is not None or model is not ModelName.auto):
        raise ValueError("--like takes the place of an environment and its model; leave them away")
    environment = environment or "contextual-linear"
    bounded("arms", arms, most=1_000_000)
    bounded("features", features, most=1_000_000)
    bounded("horizon", horizon, most=1_000_000_000)
    bounded("runs", runs, most=1_000_000)
    if workers is not None:
        bounded("workers", workers, most=1_000)
    if like is not None:
        rules = list(listed(policies) or ())
        play_like(like, rules, agent or [], missing, horizon, runs, seed, workers, out)
        return
    if environment in SYNTHETIC[2:4]:
        matrices = arms if environment == "contextual-linear" else 1
        counts = f"{arms:,} arms with {features:,} features"
        check_memory(counts, 8.0 * features * (2 * matrices * features + arms))
    bandit = make_environment(environment, arms, features, noise, delta, data_dir)
    learner = make_model(model, bandit, noise, horizon)
    special = {
        "UCB": usual_ucb(learner, horizon),
        "UCB1": tsucb.UCB1(),
        "Bayes-UCB": tsucb.BayesUCB(),
    }
    chosen = [named_policy(name, **special) for name in listed(policies or USUAL) or ()]
    result = tsucb.simulate(
        bandit, learner, chosen, horizon=horizon, runs=runs, seed=seed, workers=workers
    )
    summary = result.summary(baseline="TS" if "TS" in result.policies else None)
    console = Console(highlight=False)
    console.print(
        f"{environment}, {bandit.arms} arms, {type(learner).__name__}: regret after "
        f"{horizon:,} steps, {runs} runs, 95 % intervals"
    )
    table = Table("policy", "mean regret", "median", "% of TS")
    for policy, line in summary.iterrows():
        percent = (line.get(f"percent{end}", math.nan) for end in ("", "_low", "_high"))
        table.add_row(
            str(policy),
            f"{line.regret_mean:,.4g} ({line.ci95_low:,.4g} to {line.ci95_high:,.4g})",
            f"{line.regret_median:,.4g}",
            "{:.1f} ({:.1f} to {:.1f})".format(*percent) if "percent" in summary else "–",
        )
    console.print(table)
    save_figure(result, out)
    console.print(f"Figure: {out}", soft_wrap=True)


def play_like(
    log: Path,
    rules: list[str],
    files: list[Path],
    missing: str | None,
    horizon: int,
    runs: int,
    seed: int,
    workers: int | None,
    out: Path,
) -> None:
    """Simulate something like a log."""
    from rich.console import Console
    from rich.table import Table

    from tsucb.cli.evaluate import named_agents
    from tsucb.evaluation import simulate_like
    from tsucb.evaluation.like import RANDOM, WARNING
    from tsucb.logs import read_decisions

    agents = named_agents(files) | {name: {"policy": named_policy(name)} for name in rules}
    decisions = read_decisions(log, uniform=True).rewarded(missing)
    found = simulate_like(
        decisions, agents or {"default": {}}, horizon=horizon, runs=runs, seed=seed,
        workers=workers,
    )  # fmt: skip
    console = Console(highlight=False)
    console.print(
        f"like {log}: {len(decisions):,} decisions with rewards, {len(decisions.arms)} arms; "
        f"regret after {horizon:,} decisions, {runs} runs"
    )
    table = Table("configuration", "mean regret", "% of random", "settled after")
    for _, line in found.table().iterrows():
        never = "not yet" if line["configuration"] != RANDOM else "–"
        settled = float(line["settled"])
        table.add_row(
            str(line["configuration"]),
            f"{line['regret']:,.4g} ± {NORMAL * line['error']:,.2g}",
            f"{line['percent_of_random']:.1f}",
            f"{settled:,.0f}" if settled == settled else never,
        )
    console.print(table)
    console.print(
        "Settled: from then on it loses less than a tenth of what random choice loses; so much "
        "traffic it needs.",
        WARNING,
        sep="\n",
    )
    first = next(iter(found.simulations.values()))
    curves = {name: each.regret[0] for name, each in found.simulations.items()}
    draw_regret(first.checkpoints, curves, out)
    console.print(f"Figure: {out}", soft_wrap=True)


def make_environment(
    name: str, arms: int, features: int, noise: float, delta: float, data_dir: Path | None
) -> Any:
    """The environment of a name, synthetic or a dataset."""
    match name:
        case "bernoulli":
            return tsucb.KArmedBandit(arms, tsucb.BernoulliArms())
        case "gaussian":
            return tsucb.KArmedBandit(arms, tsucb.GaussianArms(noise))
        case "linear":
            return tsucb.LinearBandit(arms, features, noise)
        case "contextual-linear":
            return tsucb.ContextualLinearBandit(arms, features, noise)
        case "wheel":
            return tsucb.WheelBandit(delta)
    if name not in datasets.DATASETS:
        known = ", ".join([*SYNTHETIC, *datasets.DATASETS])
        raise ValueError(f"unknown environment {name!r}; choose one of {known}")
    return datasets.load(name, data_dir)


def make_model(name: ModelName, environment: Any, noise: float, horizon: int) -> Any:
    """The model of a name, in the environment's dimensions."""
    features = getattr(environment, "features", 0) or (environment.context_shape or (0,))[-1]
    match name:
        case ModelName.auto if hasattr(environment, "prior"):
            return environment.prior
        case ModelName.auto if hasattr(environment, "model"):
            return environment.model()
        case ModelName.adaptive:
            return tsucb.AdaptiveLinear(features)
        case ModelName.auto | ModelName.nig:
            return tsucb.NIGLinear(features)
        case ModelName.adaptive:
            return tsucb.AdaptiveLinear(features)
        case ModelName.bernoulli:
            return tsucb.BernoulliArms()
        case ModelName.gaussian:
            return tsucb.GaussianArms(noise)
        case ModelName.linear:
            return tsucb.Linear(features, noise, prior_covariance=1 / max(features, 1))
        case ModelName.contextual:
            return tsucb.ContextualLinear(features, noise, prior_covariance=1 / max(features, 1))
    return tsucb.NeuralLinear(features, training=tsucb.Training(memory=horizon))


def save_figure(result: Any, out: Path) -> None:
    """The regret curves as a file."""
    draw_regret(result.checkpoints, dict(zip(result.policies, result.regret, strict=True)), out)


def draw_regret(checkpoints: Any, curves: dict[str, Any], out: Path) -> None:
    """The regret curves of policies as a file."""
    sink = io.BytesIO()
    with theme("light"):
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        regret_curves(checkpoints, curves, axes)
        axes.set_ylabel("cumulative regret, mean with 95 % band")
        figure.savefig(sink, format=out.suffix[1:], dpi=160)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, sink.getvalue())
