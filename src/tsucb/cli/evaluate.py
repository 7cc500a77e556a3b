"""`tsucb evaluate`: estimate from logged data what policies would have earned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tsucb.cli.options import AgentsOption, MissingOption, SeedOption, grouped, option, split_list
from tsucb.cli.simulate import ModelName, make_model
from tsucb.display import text_table
from tsucb.evaluation import compare, read_settings
from tsucb.files import write_whole
from tsucb.logs import LoggedData, read_decisions, replay
from tsucb.logs.decision_log import is_decision_log
from tsucb.logs.logged_data import check_events
from tsucb.logs.replay import LIVES
from tsucb.paper.news.day import log_files
from tsucb.paper.news.parser import read_day
from tsucb.policies.names import named_policy, usual_ucb


@dataclass
class Columns:
    """The columns of a table of events, and how its arms were logged."""

    arm: str = option("arm", "Column of the logged arm.")
    reward: str = option("reward", "Column of its reward.")
    context: str | None = option(
        None, "Columns of the context, comma-separated; default: all else."
    )
    available: str | None = option(None, "Column of the arms that could be played, such as a|b|c.")
    propensity: str | None = option(
        None, "Column of the probability with which the arm was logged."
    )
    uniform: bool = option(False, "Each available arm was logged equally often.", "--uniform")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `read_decisions` and `compare` for these columns.

        Raise ValueError unless exactly one of `uniform` and `propensity` is given.
        """
        if self.uniform == (self.propensity is not None):
            raise ValueError(
                "how were the arms logged? say --uniform if each available arm was equally "
                "likely, or --propensity COLUMN for the column with their probabilities"
            )
        values = dataclasses.asdict(self)
        return values | {"contexts": split_list(values.pop("context"))}


@dataclass
class AgentOptions:
    """Which agents are compared, how, and where the page goes."""

    agent: AgentsOption = None
    missing: MissingOption = None
    method: str = option("auto", "With --agent: auto, replay or doubly-robust.")
    rewards_between: str | None = option(
        None,
        "With --agent: the least and the largest possible reward, such as 0,50; known for "
        "rewards of 0 and 1.",
    )
    report: Path | None = option(None, "With --agent: write a page with tables and a figure.")

    def bounds(self) -> tuple[float, float] | None:
        """Return the bounds of rewards; raise ValueError if they are not two numbers."""
        if self.rewards_between is None:
            return None
        try:
            least, most = map(float, self.rewards_between.split(","))
        except ValueError:
            raise ValueError(
                f"--rewards-between takes two numbers, such as 0,50, not {self.rewards_between!r}"
            ) from None
        return least, most


@dataclass
class ReplayOptions:
    """The model that policies are replayed with, and how often."""

    model: ModelName = option(
        ModelName.auto, "auto: adaptive-curves, as the agent's; nig-linear for the news log."
    )
    noise: float = option(1.0, "σ of contextual-linear and gaussian.")
    intercept: bool = option(False, "Add a feature that is always 1 to the context.", "--intercept")
    strict: bool = option(False, "Malformed lines of a news log are an error.", "--strict")
    lives: int = option(
        LIVES,
        "How often a policy is replayed: once on the log, else on resampled logs, whose spread "
        "gives the interval; 1: no interval.",
        min=1,
    )


@grouped
def evaluate(
    log: Annotated[
        Path,
        typer.Argument(
            help="A decision log, a .csv or .parquet file, or a file or folder of the news log "
            "(R6B)."
        ),
    ],
    agents: AgentOptions,
    replaying: ReplayOptions,
    columns: Columns,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "--policies",
            metavar="NAME",
            help='TS, "TS-UCB(1)", "IDS(1000)", Greedy, UCB or Random; several with commas, or '
            "by repeating the option. Default: TS-UCB(1), as the agent's.",
            show_default=False,
        ),
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
) -> None:
    """Estimate from a log what agents would have earned.

    With --agent, or on a decision log, whole configurations are compared with what was logged and
    with each other: by replay where the log tried every arm often enough, else by doubly robust
    estimates. Where the log cannot say, there is a reason instead of a number.

    With --policy, by replay: the policy runs over the log and learns from the events at which it
    picks the logged arm: these matched events, thinned to equal chances where propensities differ,
    are distributed as if the policy had been live (Li et al. 2011). The rate is the mean over
    several lives of the policy, and its interval covers how much they differ. The lift is over
    the logging policy.
    """
    if not log.exists():
        raise ValueError(f"there is no file {log}")
    names = [name for text in policy or [] for name in split_list(text) or ()]
    if is_decision_log(log):
        if columns.uniform or columns.propensity is not None or columns.available is not None:
            raise ValueError(
                "a decision log has its own probabilities; leave off --uniform, --propensity "
                "and --available"
            )
        table = compare_agents(log, agents, names, {}, seed)
    elif agents.agent:
        table = compare_agents(log, agents, names, columns.arguments(), seed)
    elif agents != AgentOptions():
        raise ValueError(
            "--missing, --method, --rewards-between and --report are for --agent; name one"
        )
    else:
        table = replay_policies(log, names or ["TS-UCB(1)"], replaying, columns, seed)
    if out is not None:
        write_whole(out, table.to_csv(index=False))


def compare_agents(
    log: Path, options: AgentOptions, policies: list[str], columns: dict[str, Any], seed: int
) -> Any:
    """Compare agents on a log: print the tables, write the page; return the table of rewards."""
    agents = read_agents(options.agent, policies)
    method = options.method.replace("-", " ")
    result = compare(
        log, agents, missing=options.missing, method=method,
        rewards_between=options.bounds(), seed=seed, **columns,
    )  # fmt: skip
    heads = ["configuration", "reward, 95 %", "effective size", "not in the log"]
    pairs = [f"{pair}: {extra}, {word}" for pair, extra, word in result.pair_rows()]
    table = text_table(heads, result.value_rows())
    for line in [result.headline, table, *pairs, *result.reasons(), result.about]:
        typer.echo(line)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        result.report(options.report, f"Agents compared on {log.name}")
        typer.echo(f"Page: {options.report}")
    return result.table()


def read_agents(files: list[Path] | None, policies: Iterable[str]) -> dict[str, Any]:
    """Return settings of agents by name: of TOML files and policies, or else the default."""
    agents: dict[str, Any] = {}
    for file in files or []:
        if file.stem in agents:
            raise ValueError(f"two files are called {file.stem}; give each agent a name of its own")
        agents[file.stem] = read_settings(file)
    agents |= {name: {"policy": named_policy(name)} for name in policies}
    return agents or {"default": {}}


def replay_policies(
    log: Path, policies: list[str], options: ReplayOptions, columns: Columns, seed: int
) -> Any:
    """Replay policies over a log and print a line for each; return them as a table."""
    import pandas as pd

    name = options.model
    if log.is_dir() or (log.suffix == ".gz" and not log.name.endswith(".csv.gz")):
        parts = news_days(log, options.strict)
    else:
        decisions = read_decisions(log, **columns.arguments())
        events = decisions.logged_data(decisions.feature_matrix(options.intercept))
        parts = iter([(log.name, events)])
        name = ModelName.curves if name is ModelName.auto else name
    rows = []
    print_line("log", "policy", "rate", "95 % interval", "matched", "kept", "lift")
    for part, events in parts:
        data, model = with_model(events, name, options.noise)
        ucb = usual_ucb(model, len(data.arm))
        for rule in [named_policy(text, UCB=ucb) for text in policies]:
            found = replay(data, model, rule, seed=seed, lives=options.lives)
            rows.append({"log": part, **dataclasses.asdict(found), "kept": found.kept.size})
            interval = f"{found.low:.5f}–{found.high:.5f}"
            lift = f"{found.lift:+.1%} ({found.lift_low:+.1%} to {found.lift_high:+.1%})"
            print_line(
                part,
                found.policy,
                f"{found.rate:.5f}" if found.rate == found.rate else "–",
                interval if found.low == found.low else "–",
                f"{found.matched:,}",
                f"{found.kept.size:,}",
                lift if found.lift == found.lift else "–",
            )
    return pd.DataFrame(rows).drop(columns=["lives", "rates", "logged_rates"])


def print_line(*columns: str) -> None:
    """Print one line of the table of replays, before the next replay begins."""
    widths = (22, 12, 9, 18, 10, 10, 0)
    typer.echo(" ".join(text.ljust(width) for text, width in zip(columns, widths, strict=True)))


def news_days(path: Path, strict: bool) -> Iterator[tuple[str, LoggedData]]:
    """Yield the name and the events of every day of a news log."""
    for file in log_files(path) if path.is_dir() else [path]:
        day = read_day(file, strict=strict)
        for problem in day.problems:
            typer.echo(f"{file.name}: skipped {problem}", err=True)
        yield day.name + " (generated)" * day.generated, day.logged_data()


def with_model(events: LoggedData, name: ModelName, noise: float) -> tuple[LoggedData, Any]:
    """Return the model with this name, and the events with the contexts that it reads."""
    size, features = events.contexts.shape
    if name in (ModelName.bernoulli, ModelName.gaussian):
        events = events._replace(contexts=np.empty((size, 0)))
    elif not features and name not in (ModelName.adaptive, ModelName.curves):
        raise ValueError(f"{name} needs contexts, and the log has none; take bernoulli or gaussian")
    if name is ModelName.bernoulli and not 0 <= events.reward.min() <= events.reward.max() <= 1:
        raise ValueError("bernoulli needs rewards from 0 to 1; take --model gaussian")
    model = make_model(name, events, noise, horizon=size)
    model.check_rewards(events.reward)
    rows = np.abs(events.contexts.reshape(size, -1)).max(axis=1, initial=0)
    check_events(rows <= model.largest, f"the context has a number beyond ±{model.largest:g}")
    return events, model
