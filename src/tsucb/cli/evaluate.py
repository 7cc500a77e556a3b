"""`tsucb evaluate`: what a policy would have earned, from logged data."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tsucb.evaluate import LoggedData


class ModelName(StrEnum):
    """Models for logged data; the first two need contexts, the others use none."""

    nig = "nig-linear"
    linear = "contextual-linear"
    bernoulli = "bernoulli"
    gaussian = "gaussian"


def evaluate(
    log: Annotated[
        Path,
        typer.Argument(help="A .csv or .parquet file, or a file or folder of the news log (R6B)."),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(help='Repeat for several: TS, "TS-UCB(1)", "IDS(1000)", Greedy, UCB, Random.'),
    ] = None,
    model: Annotated[
        ModelName | None,
        typer.Option(help="Default: nig-linear with contexts, else bernoulli.", show_default=False),
    ] = None,
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
    seed: Annotated[int, typer.Option(help="Seed of the policy's draws.")] = 0,
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
    import dataclasses
    import os

    import pandas as pd

    from tsucb import ChiSquaredUCB
    from tsucb.evaluate import read_events, replay
    from tsucb.reproduce.experiment import named_policy

    policies = [named_policy(name, UCB=ChiSquaredUCB()) for name in policy or ["TS", "TS-UCB(1)"]]
    if log.is_dir() or (log.suffix == ".gz" and not log.name.endswith(".csv.gz")):
        parts = news_days(log, strict)
    else:
        if uniform == (propensity is not None):
            raise ValueError(
                "how were the arms logged? say --uniform if each available arm was equally "
                "likely, or --propensity COLUMN for the column with their probabilities"
            )
        columns = None if context is None else [c.strip() for c in context.split(",") if c.strip()]
        events = read_events(
            log,
            arm=arm,
            reward=reward,
            contexts=columns,
            available=available,
            propensity=propensity,
            uniform=uniform,
            intercept=intercept,
        )
        parts = iter([(log.name, events)])
    rows = []
    typer.echo(
        line("log", "policy", "rate", "95 % interval", "kept", "lift over the logging policy")
    )
    for name, events in parts:
        data, chosen = matching(events, model, noise)
        for rule in policies:
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
                    f"{found.lift:+.1%} ({found.lift_low:+.1%} to {found.lift_high:+.1%})",
                )
            )
    if out is not None:
        aside = out.with_name(f".{out.name}.{os.getpid()}")
        pd.DataFrame(rows).to_csv(aside, index=False)
        os.replace(aside, out)


def news_days(path: Path, strict: bool) -> Iterator[tuple[str, LoggedData]]:
    """The days of a news log, one after the other."""
    from tsucb.evaluate import news_events
    from tsucb.news import log_files, read_day

    for file in log_files(path) if path.is_dir() else [path]:
        day = read_day(file, strict=strict)
        for problem in day.problems:
            typer.echo(f"{file.name}: skipped {problem}", err=True)
        yield day.name + " (generated)" * day.generated, news_events(day)


def matching(events: LoggedData, name: ModelName | None, noise: float) -> tuple[LoggedData, Any]:
    """The model of a name, or the usual one for the data, and the data as it reads them."""
    import numpy as np

    import tsucb

    n, features = events.contexts.shape
    name = name or (ModelName.nig if features else ModelName.bernoulli)
    if name in (ModelName.bernoulli, ModelName.gaussian):
        plain = events._replace(contexts=np.empty((n, 0)))
        if name is ModelName.gaussian:
            return plain, tsucb.GaussianArms(noise)
        if events.reward.min() < 0 or events.reward.max() > 1:
            raise ValueError("rewards are not all from 0 to 1; take --model gaussian")
        return plain, tsucb.BernoulliArms()
    if not features:
        raise ValueError(f"{name} needs contexts, and the log has none; take bernoulli or gaussian")
    if name is ModelName.nig:
        return events, tsucb.NIGLinear(features)
    return events, tsucb.ContextualLinear(features, noise)


def line(*columns: str) -> str:
    """One line of the table in the terminal.

    >>> line("a.csv", "TS", "0.0412", "0.0401 to 0.0423", "1,000", "+10.1 %").split()[:3]
    ['a.csv', 'TS', '0.0412']
    """
    widths = (22, 12, 9, 18, 10, 28)
    return " ".join(
        text.ljust(width) for text, width in zip(columns, widths, strict=False)
    ).rstrip()
