"""`tsucb evaluate`: what a policy would have earned, from logged data."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tsucb.cli.reproduce import SeedOption, listed
from tsucb.cli.simulate import ModelName, make_model
from tsucb.files import write_whole
from tsucb.logs import LoggedData, read_events, replay
from tsucb.logs.logged_data import check_events
from tsucb.news import log_files, read_day
from tsucb.news.events import news_events
from tsucb.policies.names import named_policy, usual_ucb


def evaluate(
    log: Annotated[
        Path,
        typer.Argument(help="A .csv or .parquet file, or a file or folder of the news log (R6B)."),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help='TS, "TS-UCB(1)", "IDS(1000)", Greedy, UCB or Random; several with commas, or '
            "by repeating the option. Default: TS and TS-UCB(1).",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        ModelName, typer.Option(help="auto: nig-linear with contexts, else bernoulli.")
    ] = ModelName.auto,
    arm: Annotated[str, typer.Option(help="Column of the logged arm.")] = "arm",
    reward: Annotated[str, typer.Option(help="Column of its reward.")] = "reward",
    context: Annotated[
        str | None, typer.Option(help="Columns of the context, comma-separated; default: all else.")
    ] = None,
    available: Annotated[
        str | None, typer.Option(help="Column of the arms that could be played, such as a|b|c.")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Column of the probability with which the arm was logged.")
    ] = None,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Each available arm was logged equally often.")
    ] = False,
    intercept: Annotated[
        bool, typer.Option(help="Add a feature that is always 1 to the context.")
    ] = True,
    noise: Annotated[float, typer.Option(help="σ of contextual-linear and gaussian.")] = 1.0,
    seed: SeedOption = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Malformed lines of a news log are an error.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
) -> None:
    """Estimate by replay what policies would have earned on logged data.

    The policy runs over the log and learns from the events at which it picks the logged arm:
    these matched events, thinned to equal chances where propensities differ, are distributed as
    if the policy had been live (Li et al. 2011). The lift is over the logging policy.
    """
    import pandas as pd

    names = [name for text in policy or ["TS,TS-UCB(1)"] for name in listed(text) or ()]
    if log.is_dir() or (log.suffix == ".gz" and not log.name.endswith(".csv.gz")):
        parts = news_days(log, strict)
    else:
        if uniform == (propensity is not None):
            raise ValueError(
                "how were the arms logged? say --uniform if each available arm was equally "
                "likely, or --propensity COLUMN for the column with their probabilities"
            )
        try:
            events = read_events(
                log,
                arm=arm,
                reward=reward,
                contexts=listed(context),
                available=available,
                propensity=propensity,
                uniform=uniform,
                intercept=intercept,
            )
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{log} is truncated or damaged: {error}") from None
        parts = iter([(log.name, events)])
    rows = []
    typer.echo(line("log", "policy", "rate", "95 % interval", "matched", "kept", "lift"))
    for name, events in parts:
        data, chosen = matching(events, model, noise)
        ucb = usual_ucb(chosen, len(data.arm))
        for rule in [named_policy(text, UCB=ucb) for text in names]:
            found = replay(data, chosen, rule, seed=seed)
            rows.append({"log": name, **dataclasses.asdict(found), "kept": found.kept.size})
            typer.echo(
                line(
                    name,
                    found.policy,
                    f"{found.rate:.5f}",
                    f"{found.low:.5f}–{found.high:.5f}",
                    f"{found.matched:,}",
                    f"{found.kept.size:,}",
                    f"{found.lift:+.1%} ({found.lift_low:+.1%} to {found.lift_high:+.1%})"
                    if found.lift == found.lift
                    else "–",
                )
            )
    if out is not None:
        write_whole(out, pd.DataFrame(rows).to_csv(index=False))


def news_days(path: Path, strict: bool) -> Iterator[tuple[str, LoggedData]]:
    """The days of a news log, one after the other."""
    for file in log_files(path) if path.is_dir() else [path]:
        day = read_day(file, strict=strict)
        for problem in day.problems:
            typer.echo(f"{file.name}: skipped {problem}", err=True)
        yield day.name + " (generated)" * day.generated, news_events(day)


def matching(events: LoggedData, name: ModelName, noise: float) -> tuple[LoggedData, Any]:
    """The model of a name, and the data as it reads them."""
    size, features = events.contexts.shape
    if name is ModelName.auto and not features:
        name = ModelName.bernoulli
    if name in (ModelName.bernoulli, ModelName.gaussian):
        events = events._replace(contexts=np.empty((size, 0)))
    elif not features:
        raise ValueError(f"{name} needs contexts, and the log has none; take bernoulli or gaussian")
    if name is ModelName.bernoulli and not 0 <= events.reward.min() <= events.reward.max() <= 1:
        raise ValueError("bernoulli needs rewards from 0 to 1; take --model gaussian")
    model = make_model(name, events, noise, horizon=size)
    model.check_rewards(events.reward)
    rows = np.abs(events.contexts.reshape(size, -1)).max(axis=1, initial=0)
    check_events(rows <= model.largest, f"the context has a number beyond ±{model.largest:g}")
    return events, model


def line(*columns: str) -> str:
    """One line of the table in the terminal."""
    widths = (22, 12, 9, 18, 10, 10, 0)
    return " ".join(text.ljust(width) for text, width in zip(columns, widths, strict=True))
